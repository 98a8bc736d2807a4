package admin

import (
	"maps"
	"slices"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
	"go.yaml.in/yaml/v3"
)

// The document names every route with its methods, and none that is not there.
func TestOpenAPINamesEveryRoute(t *testing.T) {
	a, _ := newAPI(Config{DLQ: dlq.New(dlq.Config{})})
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string         `yaml:"operationId"`
			Responses   map[string]any `yaml:"responses"`
		}
	}
	raw := map[string]any{}
	if err := yaml.Unmarshal(openAPI, &raw); err != nil {
		t.Fatal(err)
	}
	for _, path := range raw["paths"].(map[string]any) {
		delete(path.(map[string]any), "parameters")
	}
	again, err := yaml.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(again, &doc); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(doc.Paths)), slices.Sorted(maps.Keys(a.routes)); !slices.Equal(got, want) {
		t.Errorf("paths %q\nroutes %q", got, want)
	}
	seen := map[string]string{}
	for path, methods := range doc.Paths {
		r := a.routes[path]
		if _, get := methods["get"]; get != (r.get != nil) {
			t.Errorf("%s: GET %v", path, get)
		}
		if _, post := methods["post"]; post != (r.post != nil) {
			t.Errorf("%s: POST %v", path, post)
		}
		for method, op := range methods {
			if other := seen[op.OperationID]; other != "" || op.OperationID == "" {
				t.Errorf("%s %s: operation %q is also %s", method, path, op.OperationID, other)
			}
			seen[op.OperationID] = path
			if op.Responses["default"] == nil {
				t.Errorf("%s %s says nothing of errors", method, path)
			}
		}
	}
}
