package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/plugin"
)

// What is written is for ever: people keep such files beside their handlers.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		r    Record
		want string
	}{
		{Record{Offset: -1, Timestamp: -1}, `{"partition":0,"key":null,"value":null}`},
		{Record{Topic: "t", Partition: 3, Offset: 0, Timestamp: 0, Key: []byte{}, Value: []byte("v")},
			`{"topic":"t","partition":3,"offset":0,"timestamp":0,"key":"","value":"v"}`},
		{Record{Topic: "t", Offset: 1 << 62, Timestamp: -5, Key: []byte("k"), Value: []byte{0xff, 0}, Attempt: 2, About: json.RawMessage("{\n\"a\": 1.10}"),
			Headers: []plugin.Header{{Key: "h", Value: nil}, {Key: "h", Value: []byte{}}, {Key: "\xfe", Value: []byte("\xfd")}}},
			`{"topic":"t","partition":0,"offset":4611686018427387904,"timestamp":-5,"key":"k","value":{"base64":"/wA="},` +
				`"headers":[{"key":"h","value":null},{"key":"h","value":""},{"key":{"base64":"/g=="},"value":{"base64":"/Q=="}}],"attempt":2,"about":{"a":1.10}}`},
		{Record{Offset: -1, Timestamp: -1, Value: []byte("<\"é\u2028\x00\ufffd>")}, `{"partition":0,"key":null,"value":"<\"é\u2028\u0000` + "\ufffd" + `>"}`},
	} {
		var b bytes.Buffer
		if err := Encode(&b, &c.r); err != nil || b.String() != c.want+"\n" {
			t.Errorf("%+v:\n got %s, %v\nwant %s", c.r, b.String(), err, c.want)
		}
		if got, err := Parse(b.Bytes()); err != nil || got.Topic != c.r.Topic || !same(got, c.r) {
			t.Errorf("%s came back as %+v, %v", c.want, got, err)
		}
	}
}

// same compares all but About, of which only the meaning stays.
func same(a, b Record) bool {
	a.About, b.About = nil, nil
	return reflect.DeepEqual(a, b)
}

func TestEncodeSaysWhatItCannotWrite(t *testing.T) {
	err := Encode(io.Discard, &Record{Topic: "t", Offset: 7, About: json.RawMessage("{")})
	if err == nil || !strings.Contains(err.Error(), "write record t/0@7") {
		t.Error(err)
	}
}

// The place and what to write instead, for everything that people get wrong.
func TestWrongLines(t *testing.T) {
	for _, c := range []struct {
		line   string
		column int
		reason string
	}{
		{`{"vaule":"v"}`, 2, `unknown name "vaule": use topic,`},
		{`{"Value":"v"}`, 2, `unknown name "Value"`},
		{`{"value":"v","value":"w"}`, 14, `"value" is given twice`},
		{`{"value":7}`, 10, "bytes must be a string, null, or"},
		{`{"value":{"total":5}}`, 11, `unknown name "total": use base64`},
		{`{"value":{}}`, 10, "an object here must be"},
		{`{"value":["a"]}`, 10, "bytes must be"},
		{`{"value":{"base64":"a"}}`, 20, "not base64"},
		{`{"value":{"base64":"YQ==\n"}}`, 20, "not base64"},
		{`{"value":{"base64":"YR=="}}`, 20, "not base64"},
		{`{"value":{"base64":null}}`, 20, "base64 must be a string"},
		{`{"topic":null}`, 10, "topic must be a string"},
		{`{"partition":-1}`, 14, "partition must be a whole number from 0 to 2147483647"},
		{`{"partition":2147483648}`, 14, "partition must be"},
		{`{"offset":1.0}`, 11, "offset must be a whole number"},
		{`{"offset": "1"}`, 12, "offset must be a whole number"},
		{`{"timestamp":1e3}`, 14, "timestamp must be a whole number"},
		{`{"attempt":0}`, 12, "attempt must be a whole number from 1"},
		{`{"headers":{"a":"b"}}`, 12, "headers must be a list"},
		{`{"headers":["a"]}`, 13, "a header must be an object"},
		{`{"headers":[{"key":null}]}`, 20, "key must not be null"},
		{`{"headers":[{"name":"a"}]}`, 14, `unknown name "name": use key, value`},
		{`["a"]`, 1, "a record must be an object"},
		{`7`, 1, "a record must be an object"},
		{`{"value":"v"} {"value":"w"}`, 15, "one record on each line"},
		{`{"value":"v"}]`, 14, "one record on each line"},
		{`{"value":"v"`, 13, "ends too early"},
		{`{"value":"v`, 12, "ends too early"},
		{`{"value":`, 10, "ends too early"},
		{`{"about":{"a"`, 14, "ends too early"},
		{`{"value":"v",}`, 14, "invalid character"},
		{`{"value" "v"}`, 10, "invalid character"},
		{`{value:"v"}`, 2, "invalid character"},
		{`{"é":"v"}`, 2, "unknown name"},
		{`{"topic":"é","vaule":"v"}`, 14, "unknown name"},
		{`{"about":{"a":tru}}`, 18, "invalid character"},
		{"{\"value\":\"\xff\"}", 11, "not UTF-8"},
		{`{"value":"a\ud800b"}`, 12, `\ud800 is half a surrogate pair`},
		{`{"value":"\udc00\ud800"}`, 11, "half a surrogate pair"},
		{`{"value":"\ud83d\u0041"}`, 11, "half a surrogate pair"},
		{"\ufeff{}", 1, "invalid character"},
	} {
		_, err := Parse([]byte(c.line))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Column != c.column || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%s: %v, want column %d, %q", c.line, err, c.column, c.reason)
		}
	}
}

func TestRightLines(t *testing.T) {
	for _, c := range []struct {
		line string
		want Record
	}{
		{`{}`, Record{Offset: -1, Timestamp: -1}},
		{` { "value" : null , "key" : "" } ` + "\r\n", Record{Offset: -1, Timestamp: -1, Key: []byte{}}},
		{`{"value":"\ud83d\ude00\\ud800"}`, Record{Offset: -1, Timestamp: -1, Value: []byte(`😀\ud800`)}},
		{`{"value":{"base64":""}}`, Record{Offset: -1, Timestamp: -1, Value: []byte{}}},
		{`{"headers":[],"about":[1,{"value":2}]}`, Record{Offset: -1, Timestamp: -1}},
		{`{"headers":[{"key":"a"},{"value":"b","key":""}]}`, Record{Offset: -1, Timestamp: -1,
			Headers: []plugin.Header{{Key: "a"}, {Value: []byte("b")}}}},
	} {
		if got, err := Parse([]byte(c.line)); err != nil || !same(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.line, got, err, c.want)
		}
	}
}

func TestDecoder(t *testing.T) {
	d := NewDecoder(strings.NewReader("{\"value\":\"a\"}\n\n \t\r\n{\"value\":\"b\"}\n{\"valu\":\"c\"}\n{}"), "r.jsonl")
	for i, want := range []string{"a", "b"} {
		r, err := d.Next()
		if err != nil || string(r.Value) != want || d.Line() != []int{1, 4}[i] {
			t.Errorf("%q in line %d, %v, want %q", r.Value, d.Line(), err, want)
		}
	}
	for range 2 { // an error stays
		if _, err := d.Next(); err == nil || !strings.HasPrefix(err.Error(), `r.jsonl:5:2: unknown name "valu"`) {
			t.Error(err)
		}
	}
	d = NewDecoder(strings.NewReader(`{"value":"no line end"}`), "r.jsonl")
	if r, err := d.Next(); err != nil || string(r.Value) != "no line end" {
		t.Errorf("%q, %v", r.Value, err)
	}
	if _, err := d.Next(); err != io.EOF {
		t.Error(err)
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func TestDecoderIsBounded(t *testing.T) {
	_, err := NewDecoder(endless{}, "r.jsonl").Next()
	if err == nil || !strings.Contains(err.Error(), "r.jsonl:1:1: the line has more than 128 MiB") {
		t.Error(err)
	}
}

func TestDecoderTellsReadErrors(t *testing.T) {
	_, err := NewDecoder(io.MultiReader(strings.NewReader("{"), broken{}), "r.jsonl").Next()
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "read r.jsonl") {
		t.Error(err)
	}
}

type broken struct{}

var errBroken = errors.New("disk is broken")

func (broken) Read([]byte) (int, error) { return 0, errBroken }

func TestBytesJSON(t *testing.T) {
	for text, want := range map[string]Bytes{`null`: nil, `""`: {}, `"<"`: Bytes("<"), `{"base64":"/w=="}`: {0xff}} {
		var b Bytes
		if err := json.Unmarshal([]byte(text), &b); err != nil || !reflect.DeepEqual(b, want) {
			t.Errorf("%s: %v, %v", text, b, err)
		}
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(want); err != nil || out.String() != text+"\n" {
			t.Errorf("%v: %s, %v", want, out.String(), err)
		}
	}
	for _, text := range []string{`7`, `"\ud800"`, `{"base64":"x"}`, `{"a":1}`} {
		var b Bytes
		if err := json.Unmarshal([]byte(text), &b); err == nil {
			t.Errorf("%s was read as %v", text, b)
		}
	}
}

// Any line is refused with its place, or read to a record that is written and
// read again as the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"topic":"t","partition":1,"offset":2,"timestamp":-1,"key":"","value":{"base64":"/w=="},"headers":[{"key":"a","value":null}],"attempt":3,"about":{"x":[1]}}`,
		`{"value":"\ud83d\ude00"}`, `{"value":`, "{}\r\n", "\xff", `{"about":"\\u"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Line != 1 || e.Column < 1 || e.Column > len(line)+1 || e.Reason == "" {
				t.Fatalf("%q: %#v", line, err)
			}
			return
		}
		var b bytes.Buffer
		if err := Encode(&b, &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		again, err := Parse(b.Bytes())
		if err != nil || !same(again, r) {
			t.Fatalf("%q is %+v, written as %s and read as %+v, %v", line, r, b.Bytes(), again, err)
		}
	})
}

// Any bytes of a record come back as they were.
func FuzzRoundTrip(f *testing.F) {
	f.Add("t", []byte("k"), []byte(nil), "h", []byte{}, true)
	f.Add("", []byte{0xff}, []byte("\u2028<>&"), "\xfe", []byte("é"), false)
	f.Fuzz(func(t *testing.T, topic string, key, value []byte, name string, header []byte, null bool) {
		topic = strings.ToValidUTF8(topic, "?")
		if null {
			key = nil
		} else if key == nil {
			key = []byte{}
		}
		r := Record{Topic: topic, Offset: 1, Timestamp: -1, Key: key, Value: value, Headers: []plugin.Header{{Key: name, Value: header}, {Key: name}}}
		var b bytes.Buffer
		if err := Encode(&b, &r); err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(b.Bytes()); err != nil || !same(got, r) {
			t.Fatalf("%+v was written as %s and read as %+v, %v", r, b.Bytes(), got, err)
		}
	})
}
