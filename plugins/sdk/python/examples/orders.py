#!/usr/bin/env python3
"""Books confirmed orders in a shop's warehouse over HTTP."""

import json
import os
import urllib.error
import urllib.request

from kconsume import Drop, Message, Permanent, Transient, handler, serve

WAREHOUSE = os.environ.get("WAREHOUSE_URL", "http://127.0.0.1:8080/bookings")


@handler(threads=8)
def handle(m: Message) -> None:
    order = m.json()  # what is no JSON goes to the dead letters as a poison pill
    if order.get("test"):
        raise Drop("a test order")
    if order["amount"] <= 0:
        raise Permanent(f"order {order['id']}: nothing to pay", code="NO_AMOUNT")
    # The id is the same on every delivery: the warehouse books an order once.
    request = urllib.request.Request(WAREHOUSE, json.dumps(order).encode(), {"Idempotency-Key": m.id})
    try:
        urllib.request.urlopen(request, timeout=m.remaining).close()
    except urllib.error.HTTPError as e:
        if e.code == 423:
            raise Transient("the warehouse takes stock", retry_after=60) from e
        raise  # by its status: 5xx again, 4xx never
    m.emit("orders.booked", key=m.key, value=json.dumps({"id": order["id"]}))


if __name__ == "__main__":
    serve(name="orders", version="1.0", topics=["orders.confirmed"])
