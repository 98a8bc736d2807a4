'use strict';

const fs = require('node:fs');
const grpc = require('@grpc/grpc-js');

const TLS_FD = 'KCONSUME_TLS_FD';
const PEM = /-----BEGIN ([A-Z ]+)-----[^-]+-----END \1-----\n/g;

/**
 * How to serve: without TLS, or where kconsume wants it, with the certificate
 * and the key that it wrote to a pipe, and for the one client whose certificate
 * comes third. What the environment says is taken out of it: it is true for this
 * process only.
 */
function credentials() {
  const word = process.env[TLS_FD];
  if (word === undefined) return grpc.ServerCredentials.createInsecure();
  delete process.env[TLS_FD];
  const fd = Number(word);
  if (!isPipe(fd)) throw new Error(`find the certificates for TLS: ${TLS_FD}="${word}" names no pipe; start the handler with kconsume`);
  const text = fs.readFileSync(fd, 'latin1');
  fs.closeSync(fd);
  const [own, key, client] = text.match(PEM) ?? [];
  if (!client) {
    throw new Error('read the certificates for TLS: not a certificate, a key and a certificate in PEM; start the handler with a matching kconsume');
  }
  return grpc.ServerCredentials.createSsl(Buffer.from(client), [{ cert_chain: Buffer.from(own), private_key: Buffer.from(key) }], true);
}

function isPipe(fd) {
  try {
    return fs.fstatSync(fd).isFIFO();
  } catch {
    return false;
  }
}

module.exports = { credentials, isPipe };
