#!/usr/bin/env node
'use strict';

const { serve } = require('@kconsume/handler');
const { newHandler } = require('./handler');

const gateway = process.env.PAYMENTS_URL ?? 'http://127.0.0.1:8080';

async function charge(order, idempotencyKey, signal) {
  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': idempotencyKey };
  const response = await fetch(`${gateway}/charges`, { method: 'POST', headers, body: JSON.stringify(order), signal });
  await response.arrayBuffer(); // read to the end, or the connection is not used again
  return response.status;
}

serve({ name: 'orders', version: '1.0.0', topics: ['orders.confirmed'] }, newHandler(charge));
