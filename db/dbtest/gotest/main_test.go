package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := report{out: &out, said: map[string]*bytes.Buffer{}}
	err := r.read(strings.NewReader(`{"ImportPath":"broken","Action":"build-output","Output":"x.go:1: undefined: y\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"said by the good one\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":3}
{"Action":"output","Package":"p","Test":"TestBad/sub","Output":"said by the bad one\n"}
{"Action":"fail","Package":"p","Test":"TestBad/sub","Elapsed":7}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":7}
{"Action":"output","Package":"p","Test":"TestStuck","Output":"the goroutines of the stuck one\n"}
{"Action":"output","Package":"p","Output":"panic: p\n"}
{"Action":"fail","Package":"p","Elapsed":10}
{"Action":"pass","Package":"q","Elapsed":1.25}
a line of go's own
`))
	if err != nil {
		t.Fatal(err)
	}
	r.printSlowest()
	for _, want := range []string{"undefined: y", "said by the bad one", "the goroutines of the stuck one\npanic: p", "ok\tq\t1.2s", "a line of go's own",
		"the slowest of 2 tests:\n    7.0s  p  TestBad\n    3.0s  p  TestGood\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(out.String(), "good one") || strings.Contains(out.String(), "/sub\n") {
		t.Errorf("the report has more than what failed and took time")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "", "a": "a", "a b -- c": "a b|c", "-- a -- -- b --": "a|b"} {
		var groups []string
		for g := range splitGroups(strings.Fields(given)) {
			groups = append(groups, strings.Join(g, " "))
		}
		if got := strings.Join(groups, "|"); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}

func TestGoTest(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := report{out: &out, said: map[string]*bytes.Buffer{}}
	for path, want := range map[string]bool{".": true, "./nowhere": false} {
		if passed, err := goTest(t.Context(), []string{"-run", "^$", path}, t.TempDir(), &r); err != nil || passed != want {
			t.Errorf("go test %s: passed %t, %v; it said %s", path, passed, err, &out)
		}
	}
}
