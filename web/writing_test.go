package web_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// writer writes a step of the turn t1 in pieces.
type writer struct {
	f            *fake
	thread, step string
	offset       int64
}

func (w *writer) write(list ...entry.PiChunk) {
	text := chunks(list...)
	w.f.delta(w.thread, w.step, w.offset, text)
	w.offset += int64(len(text))
}

// paragraphs are about 2 KiB of Markdown with a number.
func paragraphs(n int) string {
	return fmt.Sprintf("## Part %d\n\n%s\n\n- one\n- **two**\n\n%s\n\n", n, strings.Repeat("Some words of prose. ", 45), strings.Repeat("And more of them. ", 50))
}

func TestALongAnswerIsSentInPieces(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("longlong1")
	l := listen(t, f.start(t), "thread/longlong1/2")
	l.live("thread/longlong1")
	w := &writer{f: f, thread: "longlong1", step: "turn.t1.1~1.1"}
	sent, written := 0, 0
	paint := func(part string) {
		t.Helper()
		for {
			text := fmt.Sprint(l.next().P)
			sent += len(text)
			if strings.Contains(text, part) {
				return
			}
		}
	}
	for n := range 50 {
		text := paragraphs(n)
		written += len(text)
		w.write(entry.PiChunk{Kind: "text", Text: text})
		paint(fmt.Sprintf("Part %d<", n))
	}
	if written < 90<<10 || sent > 3*written {
		t.Errorf("for %d bytes that a bot wrote the page got %d", written, sent)
	}
	t.Run("also one whose end is unfinished for long", func(t *testing.T) {
		sent, written = 0, 0
		w.write(entry.PiChunk{Kind: "text", Text: "```\n"})
		began := time.Now()
		for n := range 15 {
			text := strings.Repeat(fmt.Sprintf("a line of code %d\n", n), 160)
			written += len(text)
			w.write(entry.PiChunk{Kind: "text", Text: text})
			paint(fmt.Sprintf("code %d\n", n))
		}
		// Each paint sends it again, but the longer it is, the rarer the paints are.
		if most := int(time.Since(began)/(120*time.Millisecond)+2) * 16 << 10; sent > most {
			t.Errorf("for %d bytes of code the page got %d, want at most %d", written, sent, most)
		}
	})
}

func TestWhoComesLateSeesAllThatWasWritten(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("latelate1")
	b := newTab(t, f.start(t))
	b.open("/threads/latelate1")
	b.untilLive()
	w := &writer{f: f, thread: "latelate1", step: "turn.t1.1~1.1"}
	w.write(entry.PiChunk{Kind: "thinking", Text: "Hm, "})
	for n := range 50 {
		w.write(entry.PiChunk{Kind: "text", Block: 1, Text: paragraphs(n)})
		if n%10 == 0 {
			b.until("what is written so far", fmt.Sprintf("document.querySelector('#writing').innerText.includes('Part %d')", n))
			w.write(entry.PiChunk{Kind: "thinking", Block: 0, Text: "<b>hm</b> "})
		}
	}
	w.write(entry.PiChunk{Kind: "call_start", Block: 3, Name: "run_command"}, entry.PiChunk{Kind: "text", Block: 2, Text: "Almost **do"}, entry.PiChunk{Kind: "text", Block: 2, Text: "ne** and"},
		entry.PiChunk{Kind: "call_args", Block: 3, Text: `{"command":"make"}`})
	late := b.another()
	late.open("/threads/latelate1")
	// When the second tab joins, both tabs share a new connection, which sends everything again from the beginning. Wait for it,
	// because the page shows the end already when it is loaded.
	late.untilLive()
	const step = "document.querySelector('#writing .step')"
	for _, tab := range []*tab{b, late, b, late} {
		tab.until("the end of it", step+"?.innerText.includes('Almost done and') && "+step+".innerText.includes('make')")
	}
	const text = step + ".textContent.replace(/\\s+/g, ' ')"
	first, second := eval[string](b, text), eval[string](late, text)
	if first != second {
		t.Errorf("one who was there sees\n%.3000s\nand one who came late\n%.3000s", first, second)
	}
	for n := range 50 {
		if strings.Count(first, fmt.Sprintf("Part %d ", n)) > 1 || !strings.Contains(first, fmt.Sprintf("Part %d", n)) {
			t.Errorf("part %d is not there once", n)
		}
	}
	for _, want := range []string{"Hm, <b>hm</b> <b>hm</b>", "Almost done and", "run_command make"} {
		if strings.Count(first, want) != 1 {
			t.Errorf("%q is not there once in %.300s … %s", want, first, first[max(0, len(first)-300):])
		}
	}
	if eval[bool](b, "[...document.querySelectorAll('#writing .quiet')].some(e => !e.hidden)") {
		t.Error("it says that something is missing")
	}
	if order := eval[string](b, "[...document.querySelectorAll('#writing .step > *')].map(e => e.className).join(' ')"); order != "thinking chat chat call" {
		t.Errorf("its parts are %s", order)
	}
}

func TestALongAnswerLeavesItsBeginningOutWhileItIsWritten(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("longanswer")
	b := newTab(t, f.start(t))
	b.open("/threads/longanswer")
	b.untilLive()
	w := &writer{f: f, thread: "longanswer", step: "turn.t1.1~1.1"}
	const paragraphs = "document.querySelectorAll('#writing p:not(.quiet)').length"
	for n := range 8 {
		w.write(entry.PiChunk{Kind: "text", Text: strings.Repeat("A paragraph of an answer that does not come to its end, and goes on about the same.\n\n", 600) + fmt.Sprintf("Part %d.", n)})
		b.until("the newest part", fmt.Sprintf("document.querySelector('#writing').innerText.includes('Part %d.')", n))
		if shown := eval[int](b, paragraphs); shown > 2500 {
			t.Errorf("after part %d the page has %d paragraphs", n, shown)
		}
	}
	b.until("that something is left out", "[...document.querySelectorAll('#writing .quiet')].some(e => !e.hidden)")
	late := b.another()
	late.open("/threads/longanswer")
	late.until("the end of it", "document.querySelector('#writing')?.innerText.includes('Part 7.')")
	if shown := eval[int](late, paragraphs); shown > 2500 {
		t.Errorf("a page that is opened later has %d paragraphs", shown)
	}
}

func TestStopStaysInPlaceWhileTheTextGrows(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("stopstays")
	b := newTab(t, f.start(t))
	b.open("/threads/stopstays")
	b.untilLive()
	w := &writer{f: f, thread: "stopstays", step: "turn.t1.1~1.1"}
	w.write(entry.PiChunk{Kind: "text", Text: strings.Repeat("A first line.\n\n", 60)})
	b.until("more than fits", "document.querySelector('#scroller').scrollHeight > 1.5 * document.querySelector('#scroller').clientHeight")
	b.untilStill("#writing .stop button")
	const top = "document.querySelector('#writing .stop button').getBoundingClientRect().top"
	before := eval[float64](b, top)
	w.write(entry.PiChunk{Kind: "text", Text: strings.Repeat("A line below it.\n\n", 60) + "The last one."})
	b.until("more text", "document.querySelector('#writing').innerText.includes('The last one.')")
	if after := eval[float64](b, top); after != before {
		t.Errorf("the button was at %g and is at %g", before, after)
	}
	b.do(chromedp.Click(chromedp.CSS("#writing .stop button")))
	f.until(t, "a request to stop the turn", func() bool { return fmt.Sprint(f.stoppedTurns) == "[t1]" })
}

func TestATurnThatBeganFarUp(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnfarup")
	f.says("turnfarup", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{entry.PiText("I look."), toolCall("a", "read_thread", `{"limit":3}`)}})
	for n := range 250 {
		f.says("turnfarup", f.me.Id, "", entry.Chat{Text: fmt.Sprintf("meanwhile %d.", n)})
	}
	f.threads["turnfarup"].Running = &arbev1.Running{TurnId: "t1", AgentId: bee, AgentName: "Bee", Since: timestamppb.New(time.Now().Add(-90 * time.Second))}
	b := newTab(t, f.start(t))
	b.open("/threads/turnfarup")
	b.untilLive()
	b.until("the bot at work, since then", "document.querySelector('#writing .writing header')?.innerText.includes('Bee') && /^[1-4]m/.test(document.querySelector('#writing .elapsed').innerText)")
	w := &writer{f: f, thread: "turnfarup", step: "turn.t1.2~1.1"}
	w.write(entry.PiChunk{Kind: "text", Text: "It *was*"})
	b.until("what it writes, once, with its name and clock", "document.querySelectorAll('#writing article').length === 1 && document.querySelector('#writing em')?.innerText === 'was' && document.querySelector('#writing header').innerText.includes('Bee') && /^[1-4]m/.test(document.querySelector('#writing .elapsed').innerText)")
	f.answers("turnfarup")
	b.until("its answer", "!document.querySelector('#writing article') && [...document.querySelectorAll('#log strong')].at(-1)?.innerText === 'list' && !!document.querySelector('.answer-foot')")
	// Only a page that has seen or looked up why the turn began and what it replies to can show these.
	const shown = "[...document.querySelectorAll('#log .entry')].slice(-2).map(e => e.innerText.replace(/why\\?|Edit and ask again/g, '').replace(/↩.*/, '').replace(/\\s+/g, ' ').trim()).join('\\n')"
	before := eval[string](b, shown)
	b.open("/threads/turnfarup")
	b.untilLive()
	if after := eval[string](b, shown); after != before {
		t.Errorf("opened again it shows\n%s\nand live\n%s", after, before)
	}
}

func TestACallThatFailsOpens(t *testing.T) {
	t.Parallel()
	f := newFake().withBot()
	f.begins("turnfails")
	f.says("turnfails", bee, "turn.t1.1", entry.PiAssistant{Turn: "t1", StopReason: entry.PiToolUse, Content: []entry.PiBlock{toolCall("a", "read_thread", `{"limit":3}`), toolCall("b", "list_threads", `{}`)}})
	b := newTab(t, f.start(t))
	b.open("/threads/turnfails")
	b.untilLive()
	f.says("turnfails", bee, "turn.t1.1.call1", entry.PiToolResult{Turn: "t1", ToolCallID: "b", ToolName: "list_threads", Content: []entry.PiBlock{entry.PiText("two threads")}})
	f.says("turnfails", bee, "turn.t1.1.call0", entry.PiToolResult{Turn: "t1", ToolCallID: "a", ToolName: "read_thread", IsError: true, Content: []entry.PiBlock{entry.PiText("there is no such thread")}})
	b.until("both ends", "!!document.querySelector('.call .failed') && !!document.querySelector('.call .completed')")
	b.until("that only the failure is open", "document.querySelector('.call:has(.failed)').open && !document.querySelector('.call:has(.completed)').open")
}
