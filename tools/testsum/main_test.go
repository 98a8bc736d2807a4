package main

import (
	"strings"
	"testing"
)

func TestSummarise(t *testing.T) {
	tests := []struct {
		name, in string
		ok       bool
		want     string
	}{
		{"passed", `
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}`, true, "ok  \tp\t0.1s\n1 passed, 0 failed\n"},
		{"failed", `
{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}`, false, "a_test.go:1: wrong\nFAIL\tp\t0.1s\n1 passed, 1 failed\n"},
		{"does not build", `
{"ImportPath":"p [p.test]","Action":"build-output","Output":"p.go:1: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`, false, "p.go:1: undefined: x\nFAIL\tp [build failed]\n0 passed, 1 failed\n"},
		{"test ends the process", `
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"exit status 3\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}`, false, "exit status 3\nFAIL\tp\t0.1s\n1 passed, 1 failed\n"},
		{"stream cut", `
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`, false, "p TestA did not end\n=== RUN   TestA\n0 passed, 1 failed\n"},
		{"skipped", `
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}`, true, "--- SKIP: TestA\n1 skipped\n1 passed, 0 failed\n"},
		{"no tests", `
go: no packages`, false, "go: no packages\n0 passed, 0 failed\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := summarise(strings.NewReader(strings.TrimPrefix(tt.in, "\n")+"\n"), &out)
			if err != nil {
				t.Fatal(err)
			}
			if ok != tt.ok || out.String() != tt.want {
				t.Errorf("ok %v, output:\n%s\nwant ok %v, output:\n%s", ok, out.String(), tt.ok, tt.want)
			}
		})
	}
}
