'use strict';

const { Drop, HttpError, Permanent, Transient } = require('./errors');
const { serve, serveBatch } = require('./serve');

module.exports = { Drop, HttpError, Permanent, Transient, serve, serveBatch };
