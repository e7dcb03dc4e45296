package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// Relays reports that the driver carries the connections of every box, because few networks of an engine reach the server.
func (p *provider) Relays(ctx context.Context, ref string) (bool, sandbox.Labels, error) {
	if err := checkRef(ref); err != nil {
		return false, sandbox.Labels{}, err
	}
	found, err := p.find(ctx, ref)
	if err != nil {
		return false, sandbox.Labels{}, err
	}
	box, _ := remote.BoxOf(found.Config.Labels)
	return true, box.Labels, nil
}

// Hold counts as a program that runs in the box.
func (p *provider) Hold(ctx context.Context, ref string) (release func(), err error) {
	return p.begin(ctx, ref)
}

// Running returns the running boxes of this server's installation.
func (p *provider) Running(ctx context.Context) (refs []string, err error) {
	found, err := p.running(ctx)
	for _, one := range found {
		refs = append(refs, one.ID)
	}
	return refs, err
}

// Door runs the keeper of a door as the user of process 1.
func (p *provider) Door(ctx context.Context, ref string) (io.ReadWriteCloser, error) {
	if err := checkRef(ref); err != nil {
		return nil, err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	image, err := p.inspectImage(ctx, box.Image)
	if err != nil {
		return nil, explain(ctx, err)
	}
	keeper, err := remote.ProgramFor(processors[image.Architecture])
	if err != nil {
		return nil, err
	}
	door, err := p.door(ctx, ref, keeper)
	if !errors.Is(err, errNoKeeper) {
		return door, err
	}
	if err := p.giveKeeper(ctx, ref, keeper); err != nil { // another version of this program has made the box
		return nil, err
	}
	return p.door(ctx, ref, keeper)
}

var errNoKeeper = errors.New("the sandbox does not have this keeper")

func (p *provider) door(ctx context.Context, ref string, keeper remote.Program) (io.ReadWriteCloser, error) {
	var id string
	err := p.call(ctx, func(ctx context.Context) error {
		made, err := p.engine.ExecCreate(ctx, ref, client.ExecCreateOptions{
			User: fmt.Sprintf("%d:%d", firstID, firstID), WorkingDir: "/", Cmd: []string{ownPath(keeper), protocol.Door}, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		})
		id = made.ID
		return err
	})
	if err != nil {
		if stopped(err) {
			return nil, unavailable(err)
		}
		return nil, p.lost(ctx, ref, err)
	}
	attached, err := p.engine.ExecAttach(ctx, id, client.ExecAttachOptions{})
	if err != nil {
		return nil, p.lost(ctx, ref, err)
	}
	output, print := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(print, io.Discard, attached.Reader)
		print.CloseWithError(err) // a nil error means the end
	}()
	s := &stream{Writer: attached.Conn, Reader: bufio.NewReaderSize(output, 64<<10), end: sync.OnceFunc(func() {
		attached.Close()
		output.CloseWithError(io.ErrClosedPipe)
	})}
	if err := s.begin(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// stream is the output and input of a program.
type stream struct {
	io.Writer
	*bufio.Reader
	end func()
}

// Read resolves the ambiguity of the embedded types.
func (s *stream) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// Close ends the program.
func (s *stream) Close() error { s.end(); return nil }

// begin waits until the program prints something. In place of its output, the engine may say that there is no such program.
func (s *stream) begin(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.end)()
	first, err := s.Peek(1)
	switch {
	case ctx.Err() != nil:
		return fault.From(ctx.Err())
	case err != nil:
		return unavailable(err)
	case string(first) != protocol.Connected && string(first) != protocol.DoorTaken:
		return errNoKeeper
	}
	return nil
}

// programFile returns an archive of a keeper for [ownFolder].
func programFile(keeper remote.Program) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: ownPath(keeper)[1:], Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(keeper.Text))})
	if err == nil {
		_, err = w.Write(keeper.Text)
	}
	if err == nil {
		err = w.Close()
	}
	return archive.Bytes(), err
}
