package rpc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/auth/authtest"
	"github.com/arbe-dev/arbe/internal/rpc"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// artifactOf creates an artifact of a thread. The store lacks its bytes.
func (b *bench) artifactOf(t *testing.T, thread string) string {
	t.Helper()
	return ask[string](t, b, `
		with b as (insert into blobs (house_id, sha256, size) select house_id, sha256(convert_to($1, 'UTF8')), 0 from threads where id = $1 returning id)
		insert into artifacts (house_id, kind, thread_id, stream_id, blob_id)
		select t.house_id, 'file', t.id, s.id, b.id from b, threads t join streams s on s.name = t.stream_id where t.id = $1 returning id`, thread)
}

// bytesAccess specifies who may read and write the bytes of artifacts.
const bytesAccess = `
                nobody unknown expired revoked outsider member owner bot house-key owner-key elsewhere token reader writer sibling

GET a thread's  401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
HEAD a thread's 401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    ok     403    403
POST a thread's 401    401     401     401     404      ok     ok    ok  ok        ok        404       ok    403    ok     403
GET a house's   401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
HEAD a house's  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
POST a house's  401    401     401     401     404      ok     ok    ok  ok        ok        404       403   403    403    403
`

func TestWhoMayMoveBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cast := authtest.New(t, b.Database, b.auth)
	table := authtest.Table(t, bytesAccess)
	var operations []string
	for _, path := range []string{"", "x"} {
		for method := range strings.SplitSeq(b.request(t, "PATCH", path, "", "").want(405).header.Get("Allow"), ", ") {
			operations = append(operations, method+" a thread's", method+" a house's")
		}
	}
	authtest.Complete(t, table, operations)
	for operation, line := range table {
		t.Run(operation, func(t *testing.T) {
			method, whose, _ := strings.Cut(operation, " ")
			for _, principal := range authtest.Principals {
				t.Run(principal, func(t *testing.T) {
					for what, credential := range cast.Credentials(t, principal) {
						thread := cast.Thread(t, cast.House)
						path := b.artifactOf(t, thread)
						if whose == "a house's" {
							b.exec(t, "update artifacts set thread_id = null, stream_id = null where id = $1", path)
						}
						if method == "POST" {
							path = "?thread_id=" + thread
							if whose == "a house's" {
								path = "?house_id=" + cast.House
							}
						}
						got := b.request(t, method, path, credential(t, thread), "")
						if want := line[principal]; want == "ok" && got.status != 200 || want != "ok" && fmt.Sprint(got.status) != want {
							t.Fatalf("with %s it answers %d, want %s: %s", what, got.status, want, got.body)
						}
						if line[principal] != "ok" && method != "HEAD" {
							got.failure()
						}
					}
				})
			}
		})
	}
	t.Run("missing artifacts and other houses' look the same", func(t *testing.T) {
		theirs := b.artifactOf(t, cast.Thread(t, cast.Other))
		for _, principal := range []string{"member", "token"} {
			for _, credential := range cast.Credentials(t, principal) {
				shown := credential(t, cast.Thread(t, cast.House))
				there, not := b.request(t, "GET", theirs, shown, ""), b.request(t, "GET", "0nosuchartifact", shown, "")
				if there.status != not.status || strings.ReplaceAll(there.body, theirs, "0nosuchartifact") != not.body {
					t.Errorf("of another's it says %s, of none %s", there.body, not.body)
				}
			}
		}
	})
}

// response is the answer to a request for bytes.
type response struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// request gets or sends the bytes of an artifact, with a credential.
func (b *bench) request(t *testing.T, method, path, credential, body string, headers ...string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+rpc.ArtifactPath+path, strings.NewReader(body))
	must(t, err)
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	return response{t, res.StatusCode, res.Header, string(text)}
}

func (r response) want(status int) response {
	r.t.Helper()
	if r.status != status {
		r.t.Errorf("it answers %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

// failure asserts that the answer is an error with a message and a next step.
func (r response) failure() {
	r.t.Helper()
	var answer struct {
		Error struct{ Code, Message, Next string }
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || answer.Error.Code == "" || answer.Error.Message == "" || answer.Error.Next == "" {
		r.t.Errorf("it says %s", r.body)
	}
}

func inThread(id string) *arbev1.CreateArtifactRequest {
	return &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: id}}
}

func TestBytesGoInAndOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	thread := b.ada.thread(t, &arbev1.CreateThreadRequest{})
	content := bytes.Repeat([]byte("0123456789abcdef"), 3<<16) // 3 MiB
	req := inThread(thread.Id)
	req.Id, req.Kind, req.Label, req.MimeType, req.Metadata = "large0000001", "screenshot", "größer.bin", "image/png", `{"a":1}`
	made, err := b.ada.PutArtifact(t.Context(), req, iotest.HalfReader(bytes.NewReader(content)))
	must(t, err)
	if made.Size != 3<<20 || !made.HasBytes || made.Kind != "screenshot" || made.Label != "größer.bin" || made.MimeType != "image/png" || made.Metadata != `{"a": 1}` ||
		made.ThreadId != thread.Id || made.HouseId != b.ada.house.Id || made.AuthorAgentId != b.ada.id {
		t.Errorf("it is %v", made)
	}
	for _, offset := range []int64{0, 1, 3<<20 - 1} {
		r, err := b.cyd.OpenArtifact(t.Context(), made.Id, offset)
		must(t, err)
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(got, content[offset:]) {
			t.Errorf("from %d it reads %d bytes: %v", offset, len(got), err)
		}
	}
	t.Run("sent again it is the same one", func(t *testing.T) {
		again, err := b.ada.PutArtifact(t.Context(), req, bytes.NewReader(content))
		must(t, err)
		if again.Id != made.Id || again.CreatedAt.AsTime() != made.CreatedAt.AsTime() {
			t.Errorf("it is %v", again)
		}
		_, err = b.ada.PutArtifact(t.Context(), req, strings.NewReader("other"))
		refused(t, err, connect.CodeAlreadyExists)
	})
	t.Run("a reader past the end, and one of an artifact that does not exist, get an error", func(t *testing.T) {
		_, err := b.ada.OpenArtifact(t.Context(), made.Id, 3<<20)
		if err == nil {
			t.Error("it reads past the end")
		}
		_, err = b.ada.OpenArtifact(t.Context(), "0nosuchartifact", 0)
		refused(t, err, connect.CodeNotFound, "0nosuchartifact")
	})
	t.Run("ranges and validators", func(t *testing.T) {
		whole := b.request(t, "GET", made.Id, b.ada.key, "").want(200)
		if whole.header.Get("Content-Length") != fmt.Sprint(3<<20) || whole.header.Get("ETag") != `"`+made.ByteRef+`"` || whole.header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("its headers are %v", whole.header)
		}
		part := b.request(t, "GET", made.Id, b.ada.key, "", "Range: bytes=10-15").want(206)
		if part.body != "abcdef" || part.header.Get("Content-Range") != fmt.Sprintf("bytes 10-15/%d", 3<<20) {
			t.Errorf("the part is %q, %v", part.body, part.header)
		}
		if end := b.request(t, "GET", made.Id, b.ada.key, "", "Range: bytes=-3").want(206); end.body != "def" {
			t.Errorf("the end is %q", end.body)
		}
		b.request(t, "GET", made.Id, b.ada.key, "", "Range: bytes=9999999-").want(416)
		b.request(t, "GET", made.Id, b.ada.key, "", "Range: bytes=0-1,3-4").want(200)
		b.request(t, "GET", made.Id, b.ada.key, "", `If-None-Match: "`+made.ByteRef+`"`).want(304)
		if head := b.request(t, "HEAD", made.Id, b.ada.key, "").want(200); head.header.Get("Content-Length") != fmt.Sprint(3<<20) {
			t.Errorf("its headers are %v", head.header)
		}
	})
	t.Run("whoever has lost access does not get cached bytes", func(t *testing.T) {
		b.exec(t, "update api_keys set revoked_at = now() where agent_id = $1", b.cyd.id)
		b.request(t, "GET", made.Id, b.cyd.key, "", `If-None-Match: "`+made.ByteRef+`"`).want(401)
	})
}

// A browser must save the bytes and never run them, whatever they are and whatever type their creator declared.
func TestUntrustedBytesAreADownload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for kind, label := range map[string]string{
		"text/html": "page.html", "image/svg+xml": "evil.svg", "text/javascript; charset=utf-8": "a.js", "application/xhtml+xml": "../../x; Set-Cookie: a=b", "": `"; filename="x.html`,
		"multipart/x-mixed-replace; boundary=x": "ünï.png", "application/pdf": strings.Repeat("x", 200),
	} {
		for name, make := range map[string]func(*arbev1.CreateArtifactRequest) *arbev1.Artifact{
			"by RPC": func(req *arbev1.CreateArtifactRequest) *arbev1.Artifact {
				req.Content = []byte("<script>alert(1)</script>")
				res, err := b.ada.Artifacts.CreateArtifact(t.Context(), req)
				must(t, err)
				return res.Artifact
			},
			"by POST": func(req *arbev1.CreateArtifactRequest) *arbev1.Artifact {
				made, err := b.ada.PutArtifact(t.Context(), req, strings.NewReader("<script>alert(1)</script>"))
				must(t, err)
				return made
			},
		} {
			t.Run(label+" "+name, func(t *testing.T) {
				made := make(&arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_HouseId{HouseId: b.ada.house.Id}, Label: label, MimeType: kind})
				for _, got := range []response{
					b.request(t, "GET", made.Id, b.ada.key, "").want(200),
					b.request(t, "GET", made.Id, b.ada.key, "", "Range: bytes=0-3").want(206),
					b.request(t, "GET", made.Id, "", "").want(401),
				} {
					h := got.header
					if !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox;") || strings.Contains(h.Get("Content-Security-Policy"), "allow") ||
						h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Set-Cookie") != "" {
						t.Errorf("the headers of %d are %v", got.status, h)
					}
					if d := h.Get("Content-Disposition"); got.status < 300 && (!strings.HasPrefix(d, "attachment; filename") || strings.ContainsAny(d, "/\\\r\n") || len(d) > 600) {
						t.Errorf("the disposition of %d is %q", got.status, d)
					}
				}
			})
		}
	}
}

func TestWhatIsNoUpload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	thread := b.ada.thread(t, &arbev1.CreateThreadRequest{}).Id
	for name, c := range map[string]struct {
		path, body string
		headers    []string
		status     int
	}{
		"one that does not say whose it is":  {"", "x", nil, 400},
		"one of a thread and a house":        {"?thread_id=" + thread + "&house_id=" + b.ada.house.Id, "x", nil, 400},
		"one with a field that there is not": {"?thread_id=" + thread + "&name=x", "x", nil, 400},
		"one with a field twice":             {"?thread_id=" + thread + "&label=x&label=y", "x", nil, 400},
		"one with an id that is none":        {"?id=Artifact%2F..%2F&thread_id=" + thread, "x", nil, 400},
		"one with a short id":                {"?id=a&thread_id=" + thread, "x", nil, 400},
		"one with a media type that is none": {"?thread_id=" + thread, "x", []string{"Content-Type: ???"}, 400},
		"one with metadata that is none":     {"?thread_id=" + thread + "&metadata=1", "x", nil, 400},
		"one of a thread that is not there":  {"?thread_id=nosuchthread", "x", nil, 404},
		"one that is too large":              {"?thread_id=" + thread, strings.Repeat("x", 4<<20+1), nil, 413},
		"one with a NUL":                     {"?thread_id=" + thread + "&label=%00", "x", nil, 400},
		"one whose place is not text":        {"?thread_id=%00", "x", nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			b.request(t, "POST", c.path, b.ada.key, c.body, c.headers...).want(c.status).failure()
		})
	}
	t.Run("one of another site's page, with any credential", func(t *testing.T) {
		b.request(t, "POST", "?thread_id="+thread, b.ada.key, "x", "Sec-Fetch-Site: cross-site", "Origin: https://evil.example").want(403)
	})
	t.Run("one that is too large is refused before it is sent", func(t *testing.T) {
		sent := &counted{r: zeros{}}
		req, err := http.NewRequestWithContext(t.Context(), "POST", b.url+rpc.ArtifactPath+"?thread_id="+thread, sent)
		must(t, err)
		req.ContentLength = 1 << 40
		req.Header.Set("Authorization", "Bearer "+b.ada.key)
		req.Header.Set("Expect", "100-continue")
		res, err := (&http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}).Do(req)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != 413 || sent.n > 0 {
			t.Errorf("it answers %d after %d bytes", res.StatusCode, sent.n)
		}
	})
	t.Run("one that does not say how large it is ends at the limit", func(t *testing.T) {
		if _, err := b.ada.PutArtifact(t.Context(), inThread(thread), zeros{}); err == nil {
			t.Error("it has an end")
		}
	})
	t.Run("one whose id is in the path", func(t *testing.T) {
		b.request(t, "POST", "artifact1?thread_id="+thread, b.ada.key, "x").want(405)
		b.request(t, "PUT", "artifact1?thread_id="+thread, b.ada.key, "x").want(405)
	})
	t.Run("one that breaks off leaves nothing", func(t *testing.T) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		must(t, err)
		fmt.Fprintf(conn, "POST %s?id=brokenoff1&thread_id=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\nhalf", rpc.ArtifactPath, thread, b.ada.key)
		waitFor(t, func() bool { return ask[int](t, b, "select count(*) from blobs where sha256 is null") > 0 })
		must(t, conn.Close())
		waitFor(t, func() bool { return ask[int](t, b, "select count(*) from blobs where sha256 is null") == 0 })
		_, err = b.ada.Artifacts.GetArtifact(t.Context(), &arbev1.GetArtifactRequest{Id: db.IDFor(b.ada.house.Id, "brokenoff1")})
		refused(t, err, connect.CodeNotFound)
	})
	if n := ask[int](t, b, "select (select count(*) from artifacts) + (select count(*) from blobs)"); n != 0 {
		t.Errorf("%d rows stay", n)
	}
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it never came")
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestBytesThatCannotBeHad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	thread := b.ada.thread(t, &arbev1.CreateThreadRequest{}).Id
	made, err := b.ada.PutArtifact(t.Context(), inThread(thread), io.LimitReader(zeros{}, 3<<20))
	must(t, err)
	file := filepath.Join(b.blobs, made.HouseId, ask[string](t, b, "select id from blobs"))
	t.Run("end in an error when they break off, not as if they were whole", func(t *testing.T) {
		must(t, os.Truncate(file, 2<<20))
		r, err := b.ada.OpenArtifact(t.Context(), made.Id, 0)
		must(t, err)
		defer r.Close()
		if n, err := io.Copy(io.Discard, r); err == nil {
			t.Errorf("%d bytes are taken for all", n)
		}
	})
	t.Run("are an error when they are lost", func(t *testing.T) {
		must(t, os.Remove(file))
		_, err := b.ada.OpenArtifact(t.Context(), made.Id, 0)
		refused(t, err, connect.CodeNotFound, "blob store")
	})
	t.Run("are an error when they are elsewhere", func(t *testing.T) {
		req := inThread(thread)
		req.Kind, req.ByteRef = "commit", "git:abc"
		link, err := b.ada.Artifacts.CreateArtifact(t.Context(), req)
		must(t, err)
		_, err = b.ada.OpenArtifact(t.Context(), link.Artifact.Id, 0)
		refused(t, err, connect.CodeFailedPrecondition)
	})
}

func TestArtifactsByRPC(t *testing.T) {
	t.Parallel()
	b := setup(t)
	thread := b.ada.thread(t, &arbev1.CreateThreadRequest{}).Id
	var ids []string
	for i := range 5 {
		req := inThread(thread)
		req.Label = fmt.Sprint(i)
		if i%2 == 1 {
			req.Scope = &arbev1.CreateArtifactRequest_HouseId{HouseId: b.ada.house.Id}
		}
		res, err := b.ada.Artifacts.CreateArtifact(t.Context(), req)
		must(t, err)
		ids = append([]string{res.Artifact.Id}, ids...)
	}
	list := func(c *arbe.Client, req *arbev1.ListArtifactsRequest) (got []string) {
		t.Helper()
		for req.PageSize = 2; ; {
			page, err := c.Artifacts.ListArtifacts(t.Context(), req)
			must(t, err)
			for _, a := range page.Artifacts {
				got = append(got, a.Id)
			}
			if req.PageToken = page.NextPageToken; req.PageToken == "" {
				return got
			}
		}
	}
	if got := list(b.cyd.Client, &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_HouseId{HouseId: b.ada.house.Id}}); fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("the house's are %v, want %v", got, ids)
	}
	if got := list(b.cyd.Client, &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_ThreadId{ThreadId: thread}}); fmt.Sprint(got) != fmt.Sprint([]string{ids[0], ids[2], ids[4]}) {
		t.Errorf("the thread's are %v", got)
	}
	for match, want := range map[string][]string{ids[1][:4]: {ids[1]}, ids[1]: {ids[1]}, "2": {ids[2]}, ids[1][:3]: nil, "%": nil, "nothing": nil} {
		req := &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_HouseId{HouseId: b.ada.house.Id}, Match: match}
		if got := list(b.cyd.Client, req); !slices.Equal(got, want) {
			t.Errorf("%q matches %v, want %v", match, got, want)
		}
	}
	t.Run("a thread's token does not see the house's", func(t *testing.T) {
		cast := authtest.New(t, b.Database, b.auth)
		for _, credential := range cast.Credentials(t, "token") {
			c := b.client(credential(t, cast.Thread(t, cast.House)))
			_, err := c.Artifacts.ListArtifacts(t.Context(), &arbev1.ListArtifactsRequest{Scope: &arbev1.ListArtifactsRequest_HouseId{HouseId: cast.House}})
			refused(t, err, connect.CodePermissionDenied)
			_, err = c.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_HouseId{HouseId: cast.House}})
			refused(t, err, connect.CodePermissionDenied)
		}
	})
	t.Run("a request that does not say where is refused", func(t *testing.T) {
		_, err := b.ada.Artifacts.ListArtifacts(t.Context(), &arbev1.ListArtifactsRequest{})
		refused(t, err, connect.CodeInvalidArgument)
		_, err = b.ada.Artifacts.CreateArtifact(t.Context(), &arbev1.CreateArtifactRequest{})
		refused(t, err, connect.CodeInvalidArgument)
	})
	t.Run("a deleted one is gone", func(t *testing.T) {
		for range 2 {
			_, err := b.ada.Artifacts.DeleteArtifact(t.Context(), &arbev1.DeleteArtifactRequest{Id: ids[0]})
			must(t, err)
		}
		_, err := b.ada.Artifacts.GetArtifact(t.Context(), &arbev1.GetArtifactRequest{Id: ids[0]})
		refused(t, err, connect.CodeNotFound)
	})
}
