package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// Difference is one way in which a result is not what was expected.
type Difference struct {
	Record int    `json:"record,omitempty"` // 0 = there is none
	ID     string `json:"id,omitempty"`
	At     string `json:"at,omitempty"` // the line of the expectation, "" = there is none
	// Field is what differs; "" = the whole record is missing on one side.
	Field string `json:"field,omitempty"`
	// Expected and Actual are JSON; nil = nothing.
	Expected json.RawMessage `json:"expected,omitempty"`
	Actual   json.RawMessage `json:"actual,omitempty"`
}

// Compare holds results against expectations: each record has to have exactly
// one, and every field that it names has to be the same.
func Compare(lines []Line, expected []Expected) []Difference {
	byID, byRecord := map[string]*Expected{}, map[int]*Expected{}
	for i := range expected {
		x := &expected[i]
		if x.Record > 0 {
			byRecord[x.Record] = x
		} else {
			byID[x.ID] = x
		}
	}
	met := map[*Expected]bool{}
	var out []Difference
	for _, l := range lines {
		x := byRecord[l.Record]
		if x == nil {
			x = byID[l.ID]
		}
		if x == nil {
			out = append(out, Difference{Record: l.Record, ID: l.ID, Actual: encode(l)})
			continue
		}
		met[x] = true
		out = append(out, compare(&l, x)...)
	}
	for i := range expected {
		if x := &expected[i]; !met[x] {
			out = append(out, Difference{Record: x.Record, ID: x.ID, At: x.At, Expected: encode(x.fields)})
		}
	}
	return out
}

func compare(l *Line, x *Expected) []Difference {
	var actual map[string]any
	d := json.NewDecoder(bytes.NewReader(encode(l)))
	d.UseNumber()
	if err := d.Decode(&actual); err != nil {
		panic(err) // it was encoded a moment ago
	}
	var out []Difference
	for _, name := range names() {
		want, named := x.fields[name]
		if named && !has(actual, name, want) {
			out = append(out, Difference{Record: l.Record, ID: l.ID, At: x.At, Field: name, Expected: encode(want), Actual: encode(actual[name])})
		}
	}
	return out
}

// has reports whether an object has a name with JSON as wanted. What is empty
// in a Line is not written: it is as good as null, "", 0 and [].
func has(object map[string]any, name string, want any) bool {
	if actual, there := object[name]; there {
		return meets(actual, want)
	}
	switch want := want.(type) {
	case nil:
		return true
	case string:
		return want == ""
	case json.Number:
		return want == "0"
	case []any:
		return len(want) == 0
	}
	return false
}

// meets reports whether JSON is as wanted. Of an object only the names that are
// wanted count.
func meets(actual, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := actual.(map[string]any)
		for name, w := range want {
			ok = ok && has(object, name, w)
		}
		return ok
	case []any:
		list, ok := actual.([]any)
		ok = ok && len(list) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = meets(list[i], want[i])
		}
		return ok
	}
	return reflect.DeepEqual(actual, want)
}

func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("a result cannot be encoded: %v", err))
	}
	return bytes.TrimSpace(b.Bytes())
}
