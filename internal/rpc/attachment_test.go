package rpc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// photo returns a PNG of this size.
func photo(t *testing.T, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, png.Encode(&b, image.NewRGBA(image.Rect(0, 0, w, h))))
	return b.Bytes()
}

// put stores a file of a thread, or of p's house if thread is empty, and returns its id.
func (p person) put(t *testing.T, thread, name, kind string, content []byte) string {
	t.Helper()
	req := &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_HouseId{HouseId: p.house.Id}, Label: name, MimeType: kind}
	if thread != "" {
		req.Scope = &arbev1.CreateArtifactRequest_ThreadId{ThreadId: thread}
	}
	made, err := p.PutArtifact(t.Context(), req, bytes.NewReader(content))
	must(t, err)
	return made.Id
}

// attached returns the attachments of an entry.
func attached(t *testing.T, e *arbev1.Entry) []entry.Attachment {
	t.Helper()
	var c entry.Chat
	must(t, json.Unmarshal([]byte(e.Payload), &c))
	return c.Attachments
}

func TestAChatNamesFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	image, notes, house := ada.put(t, th.Id, "photo.png", "text/html", photo(t, 30, 20)), ada.put(t, th.Id, "notes.md", "text/markdown", []byte("# Grüße")), ada.put(t, "", "logo.svg", "image/svg+xml", []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`))
	said := &arbev1.SayRequest{ThreadId: th.Id, Id: "with-files", Text: "look <here>", AttachmentIds: []string{image, notes, house}}
	res, err := ada.Entries.Say(t.Context(), said)
	must(t, err)
	want := []entry.Attachment{
		{ArtifactID: image, Name: "photo.png", MediaType: "image/png", Size: int64(len(photo(t, 30, 20))), Width: 30, Height: 20},
		{ArtifactID: notes, Name: "notes.md", MediaType: "text/markdown", Size: 9},
		{ArtifactID: house, Name: "logo.svg", MediaType: "text/plain", Size: 71},
	}
	got := attached(t, res.Entry)
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("the attachments are %+v, want %+v", got, want)
		}
	}
	typed, err := ada.Entries.List(t.Context(), &arbev1.ListRequest{ThreadId: th.Id, Typed: true, Last: true, Limit: 1})
	must(t, err)
	if a := typed.Entries[0].GetChat().GetAttachments(); len(a) != 3 || a[0].ArtifactId != image || a[0].Width != 30 {
		t.Errorf("typed, the attachments are %v", a)
	}

	t.Run("a retry is harmless, also after a file was deleted", func(t *testing.T) {
		_, err := ada.Artifacts.DeleteArtifact(t.Context(), &arbev1.DeleteArtifactRequest{Id: notes})
		must(t, err)
		again, err := ada.Entries.Say(t.Context(), said)
		must(t, err)
		if again.Entry.Seq != res.Entry.Seq || again.Entry.Payload != res.Entry.Payload {
			t.Errorf("it is entry %d: %s", again.Entry.Seq, again.Entry.Payload)
		}
		_, err = ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Id: "with-files", Text: "look <here>", AttachmentIds: []string{image}})
		refused(t, err, connect.CodeAlreadyExists)
	})
	t.Run("a file needs no text", func(t *testing.T) {
		_, err := ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, AttachmentIds: []string{image}})
		must(t, err)
		_, err = ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: " "})
		refused(t, err, connect.CodeInvalidArgument)
	})
	t.Run("what arbe finds wins over what the writer says", func(t *testing.T) {
		for _, req := range []*arbev1.AppendRequest{
			{ThreadId: th.Id, Type: "chat", Payload: fmt.Sprintf(`{"text":"x","attachments":[{"artifact_id":%q,"name":"x.html","media_type":"image/svg+xml","width":9}]}`, image)},
			{ThreadId: th.Id, Type: "chat", Payload: fmt.Sprintf(`{"text":"x","\u0061ttachments":[{"Artifact_ID":%q}]}`, image)},
			{ThreadId: th.Id, Chat: &arbev1.Chat{Text: "x", Attachments: []*arbev1.Attachment{{ArtifactId: image, Name: "x.html", MediaType: "text/html"}}}},
		} {
			res, err := ada.Entries.Append(t.Context(), req)
			must(t, err)
			if got := attached(t, res.Entry); len(got) != 1 || got[0] != want[0] {
				t.Errorf("%v: the attachments are %+v", req, got)
			}
		}
	})
	t.Run("a command takes none", func(t *testing.T) {
		_, err := ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "!ls", AttachmentIds: []string{image}})
		refused(t, err, connect.CodeInvalidArgument)
		_, err = ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "!ls", Literal: true, AttachmentIds: []string{image}})
		must(t, err)
	})
	t.Run("there are at most ten, each once", func(t *testing.T) {
		var many []string
		for i := range 11 {
			many = append(many, ada.put(t, th.Id, fmt.Sprint(i), "", []byte("x")))
		}
		_, err := ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "x", AttachmentIds: many[:10]})
		must(t, err)
		_, err = ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "x", AttachmentIds: many})
		refused(t, err, connect.CodeInvalidArgument)
		for _, list := range [][]string{many, {image, image}, {""}} {
			var named []entry.Attachment
			for _, id := range list {
				named = append(named, entry.Attachment{ArtifactID: id})
			}
			payload, _ := json.Marshal(entry.Chat{Text: "x", Attachments: named})
			if _, err := ada.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: string(payload)}); err == nil {
				t.Errorf("%d of them are taken", len(list))
			}
		}
	})
	t.Run("a fork keeps what was said with them", func(t *testing.T) {
		fork, err := ada.Threads.ForkThread(t.Context(), &arbev1.ForkThreadRequest{ThreadId: th.Id, At: res.Entry.Seq})
		must(t, err)
		log := ada.log(t, fork.Thread.Id)
		found := false
		for _, e := range log {
			found = found || e.Type == "chat" && len(attached(t, e)) == 3
		}
		if !found {
			t.Errorf("the fork has %v", log)
		}
	})
}

// TestFilesOfOthersCannotBeNamed checks that through every door, the id of another thread or house gets the same answer as a
// missing id, and nothing is written.
func TestFilesOfOthersCannotBeNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, bob := b.ada, b.bob
	th, other, theirs := ada.thread(t, &arbev1.CreateThreadRequest{}), ada.thread(t, &arbev1.CreateThreadRequest{}), bob.thread(t, &arbev1.CreateThreadRequest{})
	own := ada.put(t, th.Id, "own", "", []byte("own"))
	house := ada.put(t, "", "house", "", []byte("house"))
	link, err := ada.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: th.Id}, Kind: "url", ExternalId: "https://example.com"})
	must(t, err)
	made, err := ada.Credentials.CreateThreadToken(t.Context(), &arbev1.CreateThreadTokenRequest{ThreadId: th.Id})
	must(t, err)
	token := b.client(made.Token.Token)
	for _, id := range []string{own, house} {
		if _, err := ada.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "x", AttachmentIds: []string{id}}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := token.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "x", AttachmentIds: []string{own}}); err != nil {
		t.Errorf("with the thread's token: %v", err)
	}
	before := len(ada.log(t, th.Id))
	words := map[string]bool{}
	for name, c := range map[string]struct {
		by *arbe.Client
		id string
	}{
		"unknown":                      {ada.Client, "zzzzzzzzzz"},
		"of another thread":            {ada.Client, ada.put(t, other.Id, "x", "", []byte("x"))},
		"of another house":             {ada.Client, bob.put(t, theirs.Id, "x", "", []byte("x"))},
		"of another house's house":     {ada.Client, bob.put(t, "", "x", "", []byte("x"))},
		"without bytes":                {ada.Client, link.Artifact.Id},
		"unknown, by token":            {token, "zzzzzzzzzz"},
		"of the house, by token":       {token, house},
		"of another thread, by token":  {token, ada.put(t, other.Id, "y", "", []byte("y"))},
		"of another house, by a token": {token, bob.put(t, theirs.Id, "y", "", []byte("y"))},
	} {
		for door, say := range map[string]func() error{
			"Say": func() error {
				_, err := c.by.Entries.Say(t.Context(), &arbev1.SayRequest{ThreadId: th.Id, Text: "x", AttachmentIds: []string{own, c.id}})
				return err
			},
			"Append": func() error {
				_, err := c.by.Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: th.Id, Type: "chat", Payload: fmt.Sprintf(`{"text":"x","attachments":[{"artifact_id":%q}]}`, c.id)})
				return err
			},
		} {
			err := say()
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("%s, %s: %v", name, door, err)
				continue
			}
			words[strings.ReplaceAll(err.Error(), c.id, "ID")] = true
		}
	}
	if len(words) != 1 {
		t.Errorf("the errors differ: %v", words)
	}
	if after := len(ada.log(t, th.Id)); after != before {
		t.Errorf("%d entries were written", after-before)
	}
}

// TestOnlyImagesAreShown checks that the path for images serves only bytes that are an image, and only to those who may read
// the artifact.
func TestOnlyImagesAreShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	th := ada.thread(t, &arbev1.CreateThreadRequest{})
	wide := photo(t, 30, 20)
	for name, c := range map[string]struct {
		kind    string
		content []byte
		key     string
		status  int
	}{
		"a PNG":                      {"text/html", wide, ada.key, 200},
		"a PNG of another house":     {"image/png", wide, b.bob.key, 404},
		"a PNG to nobody":            {"image/png", wide, "", 401},
		"an SVG":                     {"image/svg+xml", []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>`), ada.key, 404},
		"HTML":                       {"image/png", []byte("<html><script>1</script>"), ada.key, 404},
		"HTML behind a PNG's mark":   {"image/png", []byte("\x89PNG\r\n\x1a\n<html>"), ada.key, 404},
		"a PNG that claims too much": {"image/png", append(append([]byte{}, wide[:16]...), 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 8, 6, 0, 0, 0), ada.key, 404},
	} {
		id := ada.put(t, th.Id, name, c.kind, c.content)
		got := b.request(t, "GET", id+"/image", c.key, "")
		if got.status != c.status {
			t.Errorf("%s: %d, want %d: %.200s", name, got.status, c.status, got.body)
		}
		if h := got.header; got.status == 200 && (h.Get("Content-Type") != "image/png" || !strings.HasPrefix(h.Get("Content-Disposition"), "inline") || got.body != string(wide)) ||
			h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox; default-src 'none'") {
			t.Errorf("%s: the headers are %v", name, h)
		}
		if again := b.request(t, "GET", id, ada.key, ""); !strings.HasPrefix(again.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: by its own path it is %v", name, again.header)
		}
	}
}
