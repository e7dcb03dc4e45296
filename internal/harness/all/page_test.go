package all_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/harness/all"
)

// The page of runtimes describes each harness in the harness's own words.
func TestRuntimesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/runtimes.md")
	if err != nil {
		t.Fatal(err)
	}
	yes := map[bool]string{true: "yes", false: "no"}
	for _, h := range all.Harnesses {
		i := h.Info()
		if !i.Interrupt || !i.SameBox || !i.FreshBox { // the page says so of all of them
			t.Errorf("%s cannot be stopped, or not go on: %+v", i.Name, i)
		}
		var dialects []string
		for _, d := range i.Dialects {
			dialects = append(dialects, string(d))
		}
		row := fmt.Sprintf("| `%s` | %s %s | %s | %s | %s | %s |\n", i.Name, i.Title, i.Version, strings.Join(dialects, ", "), yes[i.Steer], yes[i.Asks], i.Limits)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/runtimes.md lacks the line\n%s", row)
		}
	}
}
