package web

import (
	"bytes"
	"context"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/markup"
)

// files shows a folder or a file of the working tree of a thread's sandbox.
func (a *app) files(w http.ResponseWriter, r *http.Request) error {
	v, asked := filesView{}, strings.ToValidUTF8(r.URL.Query().Get("path"), "\uFFFD")
	err := a.treeOf(r, &v.tree, func(ctx context.Context) error {
		pieces, err := a.services.sandboxes.ReadSandboxPath(ctx, &arbev1.ReadSandboxPathRequest{ThreadId: v.Thread.Id, Path: asked, MaxBytes: maxFileText})
		if err != nil {
			return err
		}
		defer pieces.Close()
		if pieces.Receive() {
			v.List = pieces.Msg()
		}
		var text []byte
		for v.List != nil && pieces.Receive() {
			text = append(text, pieces.Msg().Content...)
		}
		v.read(text)
		return pieces.Err()
	})
	if err != nil {
		return err
	}
	return a.show(w, r, v.status(), filesPage(v))
}

// read sets the text of a file. Every character of it is visible, because a stranger may have written it.
func (v *filesView) read(content []byte) {
	if v.List.GetFile().GetKind() != "file" {
		return
	}
	v.Part = v.List.File.Size > int64(len(content))
	if v.Binary = bytes.IndexByte(content, 0) >= 0; v.Binary {
		return
	}
	text := entry.Literal(strings.ReplaceAll(strings.ToValidUTF8(string(content), "\uFFFD"), "\r\n", "\n"))
	v.Lines = strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1
	name := path.Base(v.List.File.Name)
	v.HTML = markup.Code(strings.ToLower(name[strings.LastIndexByte(name, '.')+1:]), text)
}

// downloadFile sends a file of the working tree of a thread's sandbox. Browsers save it. If one shows it anyway, it can neither run
// scripts nor load anything.
func (a *app) downloadFile(w http.ResponseWriter, r *http.Request) error {
	asked := r.URL.Query().Get("path")
	pieces, err := a.services.sandboxes.ReadSandboxPath(r.Context(), &arbev1.ReadSandboxPathRequest{ThreadId: r.PathValue("thread"), Path: strings.ToValidUTF8(asked, "\uFFFD")})
	if err != nil {
		return err
	}
	defer pieces.Close()
	file := pieces.Receive() && pieces.Msg().File.GetKind() == "file"
	more := file && pieces.Receive()
	if err := pieces.Err(); err != nil { // an error cannot be answered once the headers of a success are sent
		return err
	}
	if !file {
		return fault.New(fault.Invalid, "this is no file to download", "choose a file")
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": literalName(path.Base(asked))}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	for ; more && r.Method != http.MethodHead; more = pieces.Receive() {
		if _, err := w.Write(pieces.Msg().Content); err != nil {
			return nil // the reader left
		}
	}
	if pieces.Err() != nil {
		panic(http.ErrAbortHandler) // otherwise the reader would take a part for the whole
	}
	return nil
}

// treeOf reads a thread and calls look to look into its sandbox. The page shows why that is impossible at the moment.
func (a *app) treeOf(r *http.Request, v *tree, look func(context.Context) error) error {
	res, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: r.PathValue("thread")})
	if err != nil {
		return err
	}
	v.Thread = res.Thread
	if err := look(r.Context()); err != nil {
		if v.Failed = faultOf(err); !slices.Contains([]fault.Code{fault.Precondition, fault.Unavailable, fault.Exhausted}, v.Failed.Code) {
			return err
		}
	}
	v.Layout, err = a.layoutOf(r, v.Thread.HouseId, v.Thread.Id)
	return err
}
