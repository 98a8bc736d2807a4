package io.github.kconsume.handler;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class FramesTest {
  private static byte[] hex(String s) {
    return HexFormat.of().parseHex(s.replace(" ", ""));
  }

  @Test
  void readsWhatProtobufWrites() throws Exception {
    // As protobuf.js writes {records: [{handle: 9007199254740991, id: "i", topic: "t", partition: 2147483647, offset: -1,
    // time_ms: -1, key: "", headers: [{key: "\\xff", value: ""}, {key: "h"}], attempt: 300, stage: "main",
    // deadline_ms: 4294967295}], drain: true, start: {concurrency: 64}, cancel: [1, 300]}.
    byte[] frame = hex(
        "0a4808ffffffffffffff0f1201691a017420ffffffff0728ffffffffffffffffff0130ffffffffffffffffff013a004a"
        + "050a01ff12004a030a016850ac0262046d61696e68ffffffff0f10011a020840220301ac02");
    Frames.HostFrame f = Frames.readHostFrame(frame);
    assertTrue(f.drain);
    assertEquals(64, f.concurrency);
    assertEquals(Set.of(1L, 300L), f.cancel);
    Delivery d = f.records.get(0);
    assertEquals(9007199254740991L, d.handle);
    assertEquals(List.of("i", "t", "main"), List.of(d.id, d.topic, d.stage));
    assertEquals(List.of(2147483647L, -1L, -1L), List.of((long) d.partition, d.offset, d.timeMs));
    assertArrayEquals(new byte[0], d.key);
    assertNull(d.value);
    assertEquals(List.of(new Header(hex("ff"), new byte[0]), new Header("h", null)), d.headers);
    assertEquals(300, d.attempt);
    assertEquals(4294967295L, d.deadlineMs);
  }

  @Test
  void unknownFieldsAreLeftAlone() throws Exception {
    // field 100: varint, fixed64, bytes, fixed32; and cancel not packed
    Frames.HostFrame f = Frames.readHostFrame(hex("a006 05 a106 0102030405060708 a206 02 0102 a506 01020304 20 07"));
    assertEquals(Set.of(7L), f.cancel);
    assertTrue(f.records.isEmpty());
  }

  @Test
  void whateverComesIsReadOrRefused() {
    Random random = new Random(1);
    byte[] good = new ProtoWriter().message(1, TestRecord.of("value").key("k").header(new Header("h", null)).write(7)).toByteArray();
    for (int i = 0; i < 200_000; i++) {
      byte[] bytes;
      if (i % 2 == 0) {
        bytes = new byte[random.nextInt(40)];
        random.nextBytes(bytes);
      } else {
        bytes = Arrays.copyOf(good, 1 + random.nextInt(good.length));
        bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
      }
      try {
        Frames.readHostFrame(bytes);
      } catch (WireException e) {
        assertTrue(e.getMessage().startsWith("read frame: not valid protobuf: "));
      }
    }
    for (String bad : List.of("0a", "0a05", "0aff", "00", "07", "20ffffffffffffffffffff01", "0affffffff0f", "10")) {
      assertThrows(WireException.class, () -> Frames.readHostFrame(hex(bad)), bad);
    }
  }

  @Test
  void verdictsAreCutToTheirBounds() throws Exception {
    Verdict v = new Verdict(Verdict.Kind.PERMANENT, "permanent", "c".repeat(1000), "ä".repeat(9000) + "\ud83d", Duration.ofSeconds(Long.MAX_VALUE), List.of("€".repeat(9000)), "s".repeat(99999), "r", List.of());
    int[] lengths = new int[12];
    for (ProtoReader r = new ProtoReader(Frames.verdict(new Answers.Answer(1, v, true))); r.next(); ) {
      if (r.field() >= 3 && r.field() != 6 && r.field() != 11) lengths[r.field()] = r.bytes().length;
      if (r.field() == 5) assertEquals("ä".repeat(4096), r.text());
      if (r.field() == 6) assertEquals(Long.MAX_VALUE, r.number());
    }
    assertEquals(256, lengths[4]);
    assertEquals(8192, lengths[5]);
    assertEquals(8190, lengths[7]); // not within a character
    assertEquals(16384, lengths[8]);
  }

  @Test
  void textsAreValidUtf8() {
    assertArrayEquals("bad ? text".getBytes(StandardCharsets.UTF_8), Arrays.copyOfRange(new ProtoWriter().text(1, "bad \ud83d text").toByteArray(), 2, 12));
  }
}
