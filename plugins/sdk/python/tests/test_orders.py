"""The example, as its author would test it."""

import http.server
import json
import pathlib
import runpy
import threading
import unittest

from kconsume.testing import record, run

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "orders.py"


class Warehouse(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.booked.append((self.headers["Idempotency-Key"], self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class OrdersTest(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Warehouse)
        self.server.status, self.server.booked = 200, []
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        module = runpy.run_path(str(EXAMPLE))
        self.handle = module["handle"]
        self.handle.__globals__["WAREHOUSE"] = f"http://127.0.0.1:{self.server.server_port}/bookings"

    def test_booked(self):
        order = {"id": 7, "amount": 5}
        v = run(self.handle, record(json=order, key=b"k", timeout=30))
        v.assert_ack()
        self.assertEqual(v.emitted[0][:3], ("orders.booked", b"k", b'{"id": 7}'))
        self.assertEqual(self.server.booked, [("test/0/0@1700000000000", json.dumps(order).encode())])

    def test_refused(self):
        run(self.handle, record(b"{")).assert_permanent(reason="poison")
        run(self.handle, record(json={"test": True})).assert_drop()
        run(self.handle, record(json={"id": 7, "amount": 0})).assert_permanent("nothing to pay")
        run(self.handle, record(json={"id": 7})).assert_permanent("amount", reason="panic")
        self.assertEqual(self.server.booked, [])

    def test_warehouse_says_no(self):
        good = record(json={"id": 7, "amount": 5})
        for status, check in ((423, "transient"), (503, "transient"), (400, "permanent")):
            self.server.status = status
            v = run(self.handle, good)
            self.assertEqual((v.class_, v.code), (check, str(status)), v)
        self.server.shutdown()
        self.server.server_close()
        run(self.handle, good).assert_transient()


if __name__ == "__main__":
    unittest.main()
