package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestOnlyAWholeRunPasses(t *testing.T) {
	t.Parallel()
	passed := strings.Repeat(`{"fullName": "a", "status": "passed"},`, tests-1)
	of := func(count int, file, last string) string {
		return fmt.Sprintf(`{"numPassedTests": %d, "testResults": [{"name": "/x/suite.js", %s, "assertionResults": [%s %s]}]}`, count, file, passed, last)
	}
	const fine, last = `"status": "passed", "message": ""`, `{"fullName": "b", "status": "passed"}`
	for name, c := range map[string]struct {
		report string
		all    bool
		want   string // in the error; empty for none
	}{
		"all passed":                 {of(tests, fine, last), true, ""},
		"one failed":                 {of(tests, fine, `{"fullName": "b", "status": "failed", "failureMessages": ["why"]}`), true, "FAILED b"},
		"one was skipped":            {of(tests, fine, `{"fullName": "b", "status": "skipped"}`), true, "b was not run"},
		"one is pending":             {of(tests, fine, `{"fullName": "b", "status": "pending"}`), true, "b was not run"},
		"one is missing":             {of(tests-1, fine, last), true, "want 342"},
		"a file failed":              {of(tests, `"status": "failed", "message": "no such import"`, last), true, "suite.js failed: no such import"},
		"a selected part of them":    {of(1, fine, `{"fullName": "b", "status": "skipped"}`), false, ""},
		"none of the selected tests": {of(0, fine, last), false, "0 tests passed"},
	} {
		var r report
		if err := json.Unmarshal([]byte(c.report), &r); err != nil {
			t.Fatal(name, err)
		}
		switch err := r.judge(c.all); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
