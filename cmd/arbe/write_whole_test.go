package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAFailedWriteLeavesNoPartOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, failed := filepath.Join(dir, "old"), errors.New("the server is gone")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{old, filepath.Join(dir, "new")} {
		err := writeWhole(path, func(to io.Writer) error {
			if _, err := io.WriteString(to, "half"); err != nil {
				t.Error(err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("the error is %v, want %v", err, failed)
		}
	}
	files, err := os.ReadDir(dir)
	if text, _ := os.ReadFile(old); err != nil || len(files) != 1 || string(text) != "old" {
		t.Errorf("the directory has %v, and the old file %q (%v)", files, text, err)
	}
}
