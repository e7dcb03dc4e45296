package remote

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// Upload writes a file into a box. It sends the file in pieces; the file appears when all have arrived.
func (d *Driver) Upload(ctx context.Context, ref, name string, mode fs.FileMode, content io.Reader) error {
	name, err := boxPath(name)
	if err != nil {
		return err
	}
	if _, err := d.keeper(ctx, ref); err != nil {
		return err
	}
	var sent parcel
	err = d.sendAll(ctx, ref, &sent, content)
	r := protocol.Request{Op: protocol.Place, Path: name, Mode: uint32(mode.Perm()), Parcel: sent.name, Pieces: sent.pieces}
	if err != nil {
		r.Op = protocol.Drop
		if _, failed := d.call(context.WithoutCancel(ctx), ref, r); failed != nil {
			err = errors.Join(err, failed)
		}
		return err
	}
	reply, err := d.call(ctx, ref, r)
	if err != nil {
		return err
	}
	return explain(reply, r)
}

// sendAll sends a file in pieces.
func (d *Driver) sendAll(ctx context.Context, ref string, p *parcel, content io.Reader) error {
	buffer := make([]byte, MaxInput)
	for {
		n, err := io.ReadFull(contextReader{ctx, content}, buffer)
		over := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !over {
			if ctx.Err() != nil {
				return fault.From(ctx.Err())
			}
			return fault.From(err)
		}
		if n > 0 || p.pieces == 0 {
			if err := d.send(ctx, ref, p, buffer[:n]); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
	}
}

// contextReader ends a copy when ctx ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// Download opens a file of a box. It is read in parts, on demand.
func (d *Driver) Download(ctx context.Context, ref, name string) (io.ReadCloser, error) {
	name, err := boxPath(name)
	if err != nil {
		return nil, err
	}
	f := &download{ctx: ctx, d: d, ref: ref, name: name}
	if err := f.fetch(); err != nil {
		return nil, err
	}
	return f, nil
}

// download is a file that is being read.
type download struct {
	ctx       context.Context
	d         *Driver
	ref, name string
	identity  string
	at        int64
	ready     []byte
	over      bool
}

func (f *download) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if f.over {
			return 0, io.EOF
		}
		if err := f.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// Close closes the file.
func (f *download) Close() error { return nil }

// fetch reads the next part.
func (f *download) fetch() error {
	r := protocol.Request{Op: protocol.Fetch, Path: f.name, Position: f.at, Most: mostFollowed, Identity: f.identity}
	reply, err := f.d.call(f.ctx, f.ref, r)
	if err == nil {
		err = explain(reply, r)
	}
	if err != nil {
		return err
	}
	f.ready, f.identity, f.over = reply.Data, reply.Identity, reply.Last || len(reply.Data) == 0
	f.at += int64(len(reply.Data))
	return nil
}

// boxPath makes a path absolute in the box.
func boxPath(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) || strings.HasSuffix(name, "/") {
		return "", fault.Newf(fault.Invalid, "name a file, absolute or relative to the working tree", "%q is not the path of a file", name)
	}
	if !path.IsAbs(name) {
		name = sandbox.Workspace + "/" + name
	}
	return path.Clean(name), nil
}
