package operate

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/operate/lab"
)

// schemaSeed makes the requests the same in every run.
const schemaSeed = "20261129"

// Schemathesis makes requests of all kinds, right and wrong ones, from the
// OpenAPI document, and holds the daemon's answers against it.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	program := schemathesis(t)
	s := newScene(t, "schema", 2)
	s.letters(0, 200, handled())
	d, _ := s.start()
	api := d.As(lab.AdminToken)
	// Something is there of each kind that a path can name.
	p := s.plan(api, dlq.PlanRequest{Reason: "to have a job", Selection: dlq.Selection{Limit: 5}})
	j := s.settled(s.apply(api, p.Digest).ID, api)
	open := s.plan(api, dlq.PlanRequest{Action: dlq.ActionDiscard, Reason: "to have a plan", Selection: dlq.Selection{Limit: 3}})
	document := api.Do(t, http.MethodGet, "/v1/openapi.yaml", nil)
	if document.Status != http.StatusOK {
		t.Fatal(document)
	}
	dir := t.TempDir()
	text := string(document.Body)
	for name, is := range map[string]string{"topic": s.dlq, "id": j.ID, "digest": open.Digest} {
		text = there(t, text, name, is)
	}
	for name, text := range map[string]string{"openapi.yaml": text, "schemathesis.toml": strings.ReplaceAll(schemaConfig, "URL", d.URL)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "run", "openapi.yaml", "--seed", schemaSeed, "--max-examples", "40", "--phases", "examples,coverage,fuzzing", "--no-color", "--continue-on-failure", "--no-shrink")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TOKEN="+lab.AdminToken)
	out, err := cmd.CombinedOutput()
	if at := bytes.Index(out, []byte("SUMMARY")); at >= 0 {
		t.Logf("%s", out[at:])
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// there says in the document what a part of paths must be, so that not all
// requests end at 404.
func there(t *testing.T, document, name, is string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(.*\{name: ` + name + `, in: path, .*schema: )\{.*\}\}$`)
	if !line.MatchString(document) {
		t.Fatalf("the document has no parameter %s in a path", name)
	}
	return line.ReplaceAllString(document, "${1}{type: string, enum: ["+is+"]}}")
}

// schemaConfig: what the document allows may still be refused where it cannot
// say why: a cursor of another list, a time that is not before another one, a
// record that is gone. No answer may be a 5xx.
const schemaConfig = `
base-url = "URL"
headers = { Authorization = "Bearer ${TOKEN}" }
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "403", "404", "409", "410", "429"]
[[operations]]
include-operation-id = ["audit", "export", "groups", "jobs", "messages", "plan"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "403", "404", "409", "410", "429"]
`

// schemathesis is the program, installed into build/ where it is missing.
func schemathesis(t *testing.T) string {
	t.Helper()
	home, err := filepath.Abs("../../build/schemathesis")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(wait(t), "bash", "schemathesis.sh", home)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install schemathesis: %v\n%s", err, out)
	}
	return filepath.Join(home, "bin", "st")
}
