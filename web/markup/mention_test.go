package markup

import (
	"bytes"
	"strings"
	"testing"
)

func TestMentionsAreLinks(t *testing.T) {
	t.Parallel()
	effort := NewEffort()
	effort.Mentions = Mentions{
		Find: func(text []byte) (spans [][2]int) {
			for from := 0; ; {
				at := bytes.IndexByte(text[from:], '@')
				if at < 0 {
					return spans
				}
				end := from + at + 1
				for end < len(text) && (text[end] == '-' || 'a' <= text[end]|0x20 && text[end]|0x20 <= 'z') {
					end++
				}
				spans = append(spans, [2]int{from + at, end})
				from = end
			}
		},
		Address: func(handle string) string {
			if handle == "ann" {
				return `/houses/a"b`
			}
			return ""
		},
	}
	const link = `<a class="mention" href="/houses/a&#34;b">@ann</a>`
	for text, want := range map[string]string{
		"hello @ann, and @nobody":           "<p>hello " + link + ", and @nobody</p>",
		"**@ann**\nnext":                    "<p><strong>" + link + "</strong><br>\nnext</p>",
		"@Ann":                              `<p><a class="mention" href="/houses/a&#34;b">@Ann</a></p>`,
		"`@ann`":                            "<p><code>@ann</code></p>",
		"[@ann](https://x.test)":            `<p><a href="https://x.test" rel="nofollow noopener" target="_blank">@ann</a></p>`,
		`<span class="mention">@ann</span>`: `<p>&lt;span class=&#34;mention&#34;&gt;` + link + `&lt;/span&gt;</p>`,
	} {
		if got := strings.TrimSpace(Markdown(text, effort)); got != want {
			t.Errorf("%q is\n%s\nwant\n%s", text, got, want)
		}
	}
}
