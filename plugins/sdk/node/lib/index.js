'use strict';

const { Drop, Permanent, Transient } = require('./errors');
const { serve, serveBatch } = require('./serve');

module.exports = { Drop, Permanent, Transient, serve, serveBatch };
