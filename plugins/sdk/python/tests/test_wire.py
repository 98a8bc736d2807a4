import pathlib
import re
import unittest

from kconsume import _wire as wire

PROTO = pathlib.Path(__file__).parents[4] / "plugin" / "proto" / "handler.proto"


class TableTest(unittest.TestCase):
    def test_is_the_contract(self):
        """The table has the fields of handler.proto, and no others."""
        text = re.sub(r"//.*", "", PROTO.read_text())
        text = re.sub(r"enum (\w+) \{[^}]*\}", "", text)
        found = {}
        for name, body in re.findall(r"message (\w+) \{([^}]*)\}", text):
            found[name] = []
            for mark, kind, field, number in re.findall(r"(optional |repeated |)(\w+) (\w+) = (\d+);", body):
                if kind == "Class":
                    field, kind = "class_", "int32"
                found[name].append((field, int(number), {"optional ": "?", "repeated ": "*", "": ""}[mark] + kind))
        self.assertEqual(found, wire.TABLE)
        classes = re.findall(r"(\w+) = (\d+);", re.search(r"enum Class \{([^}]*)\}", PROTO.read_text()).group(1))
        self.assertEqual([(name, getattr(wire, name)) for name, _ in classes], [(name, int(n)) for name, n in classes])
        self.assertIn(f"package {wire.PACKAGE};", text)

    def test_null_and_empty(self):
        r = wire.Record(key=b"")
        again = wire.Record.FromString(r.SerializeToString())
        self.assertTrue(again.HasField("key"))
        self.assertFalse(again.HasField("value"))

    def test_acknowledgements_are_packed(self):
        self.assertEqual(wire.PluginFrame(acked=[1, 2, 3]).SerializeToString(), b"\x12\x03\x01\x02\x03")

    def test_texts_come_back(self):
        for b in (b"", "größe".encode(), b"\xff\xfe", b"\xed\xa0\x80", bytes(range(256))):
            self.assertEqual(wire.encode(wire.text(b)), b)
        self.assertEqual(wire.encode("half \ud83d"), b"half ?")
        self.assertEqual(wire.encode(b"\xff"), b"\xff")


if __name__ == "__main__":
    unittest.main()
