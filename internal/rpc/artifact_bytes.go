package rpc

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/picture"
	"github.com/arbe-dev/arbe/internal/retention"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// ArtifactPath is the path of [ArtifactBytes]. An artifact's own path is this path followed by its id.
const ArtifactPath = "/api/artifact/"

// maxDownload limits one download, because otherwise a client that always reads slowly would hold a connection forever.
// Package httpd limits how long a client of any request may stall.
const maxDownload = time.Hour

// ArtifactBytes serves the bytes of artifacts under [ArtifactPath], with the same credentials as the services. GET and HEAD
// read them, whole or a range. POST creates an artifact from its body. A POST from a page of another site is refused, because
// the browser would add the session's cookie to it.
//
// Anyone may have written the bytes, so a browser must save them and not show them. If it shows them anyway, they can neither
// run scripts nor load anything. A browser may show only bytes that really are a PNG, JPEG, GIF or WebP, and not too large.
// It gets these under their path with "/image", and with the type of the bytes, not the declared type.
func ArtifactBytes(s Services) http.Handler {
	d := &artifactDoor{s, &interceptor{auth: s.Auth, logger: s.Logger}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ArtifactPath+"{id}", d.answer(d.get)) // HEAD too
	mux.HandleFunc("GET "+ArtifactPath+"{id}/image", d.answer(d.image))
	mux.HandleFunc("POST "+ArtifactPath+"{$}", d.answer(d.post))
	return http.NewCrossOriginProtection().Handler(mux)
}

type artifactDoor struct {
	Services
	interceptor *interceptor
}

// answer returns a handler that authenticates, calls do, and answers its error.
func (d *artifactDoor) answer(do func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		p, err := d.interceptor.caller(r.Context(), r.Header)
		if err == nil {
			ctx, cancel := context.WithTimeout(p.With(r.Context()), maxDownload)
			defer cancel()
			err = do(w, r.WithContext(ctx))
		}
		if err != nil {
			d.fail(w, r, err)
		}
	}
}

// maxImage limits the bytes of an image that a page shows.
const maxImage = 20 << 20

func (d *artifactDoor) get(w http.ResponseWriter, r *http.Request) error {
	return d.serve(w, r, func(got artifact.Artifact, _ io.Reader) (kind, disposition string, err error) {
		return contentType(got.MIMEType), "attachment", nil
	})
}

// image serves an image for a page to show.
func (d *artifactDoor) image(w http.ResponseWriter, r *http.Request) error {
	return d.serve(w, r, func(got artifact.Artifact, content io.Reader) (kind, disposition string, err error) {
		info, err := picture.Look(content)
		if errors.Is(err, picture.ErrNone) || errors.Is(err, picture.ErrDamaged) || errors.Is(err, picture.ErrHuge) || err == nil && got.Size > maxImage {
			return "", "", fault.New(fault.NotFound, "this artifact is not an image that can be shown", "download it instead")
		}
		return info.Type, "inline", err
	})
}

// serve serves the bytes of an artifact, with the media type and the disposition that as returns.
func (d *artifactDoor) serve(w http.ResponseWriter, r *http.Request, as func(artifact.Artifact, io.Reader) (kind, disposition string, err error)) error {
	id := r.PathValue("id")
	scope, err := d.Auth.Authorize(r.Context(), auth.Read, auth.Artifact(id))
	if err != nil {
		return d.whyGone(r.Context(), retention.Artifact, id, err)
	}
	got, err := d.Artifacts.Get(r.Context(), scope, id)
	if err != nil {
		return err
	}
	content, err := d.Artifacts.Open(r.Context(), got)
	if err != nil {
		return err
	}
	defer content.Close()
	kind, disposition, err := as(got, content)
	if err != nil {
		return err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return err
	}
	// Read one byte first, because an error cannot be answered once the headers of a success are sent.
	if r.Method != http.MethodHead && got.Size > 0 {
		if _, err := content.Read(make([]byte, 1)); err != nil {
			return err
		}
		content.Seek(0, io.SeekStart)
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": got.FileName()}))
	h.Set("ETag", `"`+got.ByteRef+`"`)
	// A cache must ask again before each use. Otherwise somebody who lost permission could still read the bytes.
	h.Set("Cache-Control", "private, no-cache")
	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range") // each range is a request to the store, so a request for several ranges gets everything
	}
	http.ServeContent(w, r, "", got.CreatedAt, content)
	if content.Err() != nil {
		d.Logger.WarnContext(r.Context(), "a download broke off", "error", fault.From(content.Err()).Detail())
		panic(http.ErrAbortHandler) // otherwise the client would take a part for the whole
	}
	return nil
}

// contentType returns a media type in a form that is valid as a header. For other text, it returns the type of unknown bytes.
func contentType(said string) string {
	if kind, params, err := mime.ParseMediaType(said); err == nil {
		if text := mime.FormatMediaType(kind, params); text != "" {
			return text
		}
	}
	return "application/octet-stream"
}

func (d *artifactDoor) post(w http.ResponseWriter, r *http.Request) error {
	req, err := createRequest(r)
	if err != nil {
		return err
	}
	scope, err := d.mayCreateArtifact(r.Context(), req)
	if err != nil {
		return err
	}
	if err := d.Artifacts.Fits(r.ContentLength); err != nil {
		return err
	}
	made, err := d.Artifacts.Create(r.Context(), scope, artifactDraft(req), r.Body)
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(wireArtifact(made))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // fails only if the client has left, which may repeat the request with the same id
	return nil
}

// createRequest converts a POST to a message. The body is the content. The query has the other fields by their names, and the
// header has the media type.
func createRequest(r *http.Request) (*arbev1.CreateArtifactRequest, error) {
	req := &arbev1.CreateArtifactRequest{}
	m := req.ProtoReflect()
	for name, values := range r.URL.Query() {
		field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil || field.Kind() != protoreflect.StringKind || len(values) != 1 || name == "byte_ref" {
			return nil, fault.Newf(fault.Invalid, "use the fields of CreateArtifactRequest in proto/arbe/v1/artifact.proto, each once", "the query has an unknown field %.40q, or has it twice", name)
		}
		if oneof := field.ContainingOneof(); oneof != nil && m.WhichOneof(oneof) != nil {
			return nil, fault.New(fault.Invalid, "the query names a house and a thread", "name only the thread: its house is known")
		}
		m.Set(field, protoreflect.ValueOfString(values[0]))
	}
	if req.GetHouseId() == "" && req.GetThreadId() == "" {
		return nil, fault.New(fault.Invalid, "the query names neither a thread nor a house", "add ?thread_id= or ?house_id=")
	}
	if req.MimeType == "" {
		req.MimeType = r.Header.Get("Content-Type")
	}
	return req, nil
}

// fail answers with an error.
func (d *artifactDoor) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := faultOf(err)
	if f.Code == fault.Internal {
		d.Logger.ErrorContext(r.Context(), "a request failed", "method", r.Method, "path", r.URL.Path, "reference", f.Reference, "error", f.Detail())
	}
	status := f.Code.HTTPStatus()
	if errors.Is(err, artifact.ErrTooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	w.Header().Set("Cache-Control", "no-store") // replaces the artifact's policy, because no cache must store an error
	fault.Answer(w, r, status, f.Code, f.BodyFor(r))
}
