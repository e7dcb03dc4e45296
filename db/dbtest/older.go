package dbtest

import (
	"os/exec"
	"path"
	"strings"
	"testing"
)

// migrationsDir is where migrations are, from the top of the repository.
const migrationsDir = "db/migrations/"

// OlderCommit returns the commit whose version came before this one's: the last release, or else the last commit with an
// older schema from which this one's follows by further migrations. It skips the test if git or the history is not there, as
// in a shallow clone.
func OlderCommit(t testing.TB) string {
	t.Helper()
	if tag, err := git("describe", "--tags", "--abbrev=0", "HEAD^"); err == nil {
		return tag
	}
	changes, err := git("log", "--first-parent", "--format=%H", "-200", "--", ":/"+migrationsDir)
	if err != nil || changes == "" {
		t.Skip("there is no history of git here, and so no older version")
	}
	for _, change := range strings.Fields(changes) {
		if added, err := git("diff", "--name-status", change+"^", "--", ":/"+migrationsDir); err == nil && added != "" && follows(change+"^", added) {
			commit, _ := git("rev-parse", change+"^")
			return commit
		}
	}
	t.Skip("the history does not reach an older schema: fetch more of it")
	return ""
}

// follows reports whether the changes of files since a commit are new migrations with higher numbers than all of the
// commit's. Others cannot be applied to the commit's database.
func follows(commit, changes string) bool {
	had, err := git("ls-tree", "--name-only", "--full-tree", commit, migrationsDir)
	if err != nil {
		return false
	}
	last := ""
	for _, file := range strings.Fields(had) {
		last = max(last, path.Base(file))
	}
	for line := range strings.Lines(changes) {
		how, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if how != "A" || number(file) <= number(last) {
			return false
		}
	}
	return true
}

func number(file string) string {
	n, _, _ := strings.Cut(path.Base(file), "_")
	return n
}

// git returns what git prints, without the last line's end.
func git(args ...string) (string, error) {
	said, err := exec.Command("git", args...).Output()
	return strings.TrimSpace(string(said)), err
}
