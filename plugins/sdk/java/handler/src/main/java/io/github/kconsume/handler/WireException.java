package io.github.kconsume.handler;

import java.io.IOException;

/** The other end does not speak the contract. Its stream is of no more use. */
final class WireException extends IOException {
  WireException(String problem) {
    super("read frame: not valid protobuf: " + problem);
  }
}
