package web_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// TestFilesAreSentFromTheComposer has a person choose files in a browser, take one back, and send the others, against a whole
// server.
func TestFilesAreSentFromTheComposer(t *testing.T) {
	t.Parallel()
	a := installation(t)
	a.start()
	api := a.client()
	link, err := api.Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	thread := a.thread(api, 3)
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	m := image.NewRGBA(image.Rect(0, 0, 640, 320))
	for i := range m.Pix {
		m.Pix[i] = byte(i / 640)
	}
	m.Set(0, 0, color.White)
	var photo bytes.Buffer
	if err := png.Encode(&photo, m); err != nil {
		t.Fatal(err)
	}
	paths := []string{
		write("photo.png", photo.Bytes()), write("notes.txt", []byte("some notes")), write("wrong.txt", []byte("not this one")),
		write("drawing.svg", []byte(`<svg xmlns="http://www.w3.org/2000/svg" onload="document.title='owned'"><script>document.title='owned'</script></svg>`)),
	}

	b := newTab(t, "http://"+a.addr)
	b.logOut()
	b.open(link.Path)
	b.until("the question", "!!document.querySelector('form[action=\"/login\"] button')")
	b.do(chromedp.Click(chromedp.CSS("form[action='/login'] button")))
	b.until("the house", "location.pathname.startsWith('/houses/')")
	b.open("/threads/" + thread)
	b.untilLive()
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#composer-file"), paths))
	ready := func(n int) string {
		return fmt.Sprintf("document.querySelectorAll('#composer-files li').length === %d && [...document.querySelectorAll('#composer-files li')].every(c => c.dataset.file)", n)
	}
	b.until("the files", ready(4))
	b.accessibleEverywhere("a composer with files")
	b.do(chromedp.Click(chromedp.CSS("#composer-files button[aria-label='Remove wrong.txt']")))
	b.until("three files", ready(3))
	if !eval[bool](b, "document.activeElement.matches('.attach')") {
		t.Error("the focus is lost when a file is removed")
	}
	b.open("/threads/" + thread)
	b.untilLive()
	b.until("the files after a reload", ready(3))
	b.write("look at these")
	b.until("the entry with its image", "document.querySelector('#log .files img')?.complete && document.querySelector('#log .files img').naturalWidth === 640")
	b.until("an empty composer", "document.querySelector('#composer-files').hidden && !document.querySelector('#outbox form')")
	if got := eval[string](b, "[...document.querySelectorAll('#log .files li')].map(l => l.querySelector('img')?.alt ?? l.innerText.replace(/\\s+/g, ' ').trim()).join('|')"); got != "photo.png|notes.txt 10 bytes|drawing.svg 117 bytes" {
		t.Errorf("the entry shows %q", got)
	}
	b.accessibleEverywhere("an entry with files")

	// Files are pasted and dropped, too. A paste of text with a picture of it is text.
	give := func(event, field, text string) string {
		return fmt.Sprintf(`(() => {
			const data = new DataTransfer()
			data.items.add(new File(['pasted'], %q, { type: 'text/plain' }))
			if (%q) data.setData('text/plain', %[2]q)
			const e = new %s
			return document.querySelector('#composer-text').dispatchEvent(e)
		})()`, event+".txt", text, fmt.Sprintf(field, event))
	}
	paste, drag := "ClipboardEvent('%s', { clipboardData: data, bubbles: true, cancelable: true })", "DragEvent('%s', { dataTransfer: data, bubbles: true, cancelable: true })"
	if !eval[bool](b, give("paste", paste, "words")) {
		t.Error("a paste of text is taken for a file")
	}
	if eval[bool](b, give("dragover", drag, "")) || !eval[bool](b, "document.querySelector('#composer').classList.contains('drop')") {
		t.Error("the composer does not show that it takes a file")
	}
	if eval[bool](b, give("drop", drag, "")) || eval[bool](b, give("paste", paste, "")) {
		t.Error("the browser opens a dropped file, or pastes a file's name")
	}
	b.until("both files", ready(2)+" && !document.querySelector('#composer').classList.contains('drop')")
	for _, name := range []string{"drop.txt", "paste.txt"} {
		b.do(chromedp.Click(chromedp.CSS("#composer-files button[aria-label='Remove " + name + "']")))
	}
	b.until("no file", "document.querySelector('#composer-files').hidden")

	// A message needs no text, and no path shows a file that is not an image.
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#composer-file"), paths[1:2]))
	b.until("the file", ready(1))
	b.do(chromedp.Click(chromedp.CSS("#composer .send")))
	b.until("the second entry", "document.querySelectorAll('#log .files').length === 2")
	b.allow("404")
	eval[int](b, `((async () => {
		const got = []
		for (const link of document.querySelectorAll('#log .files a')) {
			const r = await fetch(link.getAttribute('href').replace(/\/image$/, '') + '/image')
			got.push([r.status, r.headers.get('content-type'), r.headers.get('content-disposition')?.split(';')[0], r.headers.get('x-content-type-options'), r.headers.get('content-security-policy')?.split(';')[0]].join(' '))
		}
		window.got = got.join('|')
	})(), 1)`)
	b.until("the answers", "!!window.got")
	const refused = "404 application/json  nosniff sandbox"
	if got, want := eval[string](b, "window.got"), "200 image/png inline nosniff sandbox|"+refused+"|"+refused+"|"+refused; got != want {
		t.Errorf("the server answers %q, want %q", got, want)
	}

	// A deleted file says so.
	list, err := api.Artifacts.ListArtifacts(t.Context(), &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: thread}, Match: "photo.png"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Artifacts.DeleteArtifact(t.Context(), &arbev1.DeleteArtifactRequest{Id: list.Artifacts[0].Id}); err != nil {
		t.Fatal(err)
	}
	b.open("/threads/" + thread)
	b.until("that it is gone", "document.querySelector('#log .files .gone')?.innerText === 'photo.png was deleted'")

	// A thread can begin with files. They are in its sandbox, too.
	house := eval[string](b, "document.querySelector('#place-house').getAttribute('href')")
	b.open(house)
	b.untilLive()
	b.do(chromedp.SetUploadFiles(chromedp.CSS(".starter [type=file]"), paths[1:2]))
	first := strings.ReplaceAll(ready(1), "#composer-files", ".starter .chips")
	b.until("the file", first)
	b.accessibleEverywhere("a first message with a file")
	b.open(house)
	b.untilLive()
	b.until("the file after a reload", first)
	b.do(keysInto("#starter-text", "begin with this"))
	b.enter()
	b.until("the thread with the file", "location.pathname.startsWith('/threads/') && document.querySelector('#log .files li')?.innerText.includes('notes.txt')")
	b.untilLive() // before that, Enter breaks the line
	b.write("!cat ~/files/notes-*.txt")
	b.until("the file in the sandbox", "document.querySelector('.screen')?.innerText.includes('some notes')")
	b.open(house)
	b.untilLive()
	b.until("no file", "document.querySelector('.starter .chips').hidden && !document.querySelector('#starter-text').value")
}
