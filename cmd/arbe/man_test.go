package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each verb and topic has a manual page, which has the text of the help and is correct roff.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := exec.Command("go", "run", "./man", "-out", dir, "-version", "v1.2.3", "-date", "2026-11-26")
	if said, err := write.CombinedOutput(); err != nil {
		t.Fatalf("they cannot be written: %v\n%s", err, said)
	}
	found, err := filepath.Glob(filepath.Join(dir, "man*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(path)] = string(text)
	}
	verbs := 0
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		verbs++
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if cmd.IsAdditionalHelpTopicCommand() {
			name = strings.TrimSuffix(name, "1") + "7"
		}
		if text := pages[name]; !strings.Contains(text, "arbe v1.2.3") || !strings.Contains(text, ".SH DESCRIPTION") || len(strings.Split(text, "\n")) < 8 {
			t.Errorf("the page %s is %q", name, text)
		}
	})
	if verbs+1 != len(pages) { // arbe help becomes a verb only when arbe runs
		t.Errorf("there are %d pages for %d verbs and topics", len(pages), verbs)
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Log("groff is not installed (apt-get install groff-base): the pages are not formatted")
		return
	}
	formatted, err := exec.Command("groff", append([]string{"-man", "-Tutf8", "-Kutf8", "-P-c"}, found...)...).CombinedOutput()
	out := regexp.MustCompile(".\x08").ReplaceAllString(string(formatted), "") // bold characters are printed twice in the same place
	if found := regexp.MustCompile(`(?m)^.*\b(warning|error):.*`).FindString(out); err != nil || found != "" {
		t.Errorf("they cannot be formatted: %v, %s", err, found)
	}
	for _, want := range []string{"arbe-thread-entries-list - Print the log of a thread", "--no-pager", "the command line or the request is wrong"} {
		if !strings.Contains(out, want) {
			t.Errorf("the formatted pages lack %q", want)
		}
	}
}
