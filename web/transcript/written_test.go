package transcript

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/web/markup"
)

// A paint with little time shows the beginning, formatted, and the next ones show the rest.
func TestAPreviewThatTakesLongIsContinued(t *testing.T) {
	t.Parallel()
	for name, paragraph := range map[string]string{
		"of paragraphs":   "Part **%d**.\n\n",
		"of one list":     "- item **%d**\n",
		"of large pieces": "Part **%d**. " + strings.Repeat("Some words of prose. ", 40) + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const parts = 100
			b, shown, paints := writtenBlock{kind: "text"}, "", 0
			for n := range parts {
				b.add(fmt.Sprintf(paragraph, n))
			}
			for behind := true; behind; paints++ {
				behind = b.render(markup.EffortOf(time.Nanosecond))
				shown += b.finished
				b.finished = "" // as after a paint
				if paints > 10*parts {
					t.Fatal("it does not end")
				}
			}
			shown += b.end
			if name != "of one list" && paints < 2 {
				t.Errorf("it took %d paints", paints)
			}
			for n := range parts {
				if strings.Count(shown, fmt.Sprintf("<strong>%d</strong>", n)) != 1 {
					t.Fatalf("part %d is not shown once, and formatted: %.2000s", n, shown)
				}
			}
			if b.render(markup.EffortOf(0)) {
				t.Error("it is rendered again, though nothing was added")
			}
		})
	}
}

func TestDeepJSONIsNotIndented(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for text, want := range map[string]bool{
		nested(30): true,
		nested(40): false,
		`["` + strings.Repeat("]", 10_000) + `", ` + nested(9_000) + `]`:     false,
		`["\"` + strings.Repeat("]", 10_000) + `\\", ` + nested(9_000) + `]`: false,
		`["` + strings.Repeat("[", 10_000) + `"]`:                            true,
		`{"a": "\\", "b": [1, 2]}`:                                           true,
		`"not closed`:                                                        false,
	} {
		if pretty, ok := indented([]byte(text)); ok != want || len(pretty) > 64<<10+1000 {
			t.Errorf("%.60s…: %v, %d bytes", text, ok, len(pretty))
		}
	}
}
