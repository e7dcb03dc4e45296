//go:build linux

package local

import (
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher notifies followers of changes of their files. All followers share one inotify instance, because a user has
// few, and closing one takes the kernel ten milliseconds.
type watcher struct {
	mu      sync.Mutex
	events  *os.File                               // nil until needed
	byWatch map[int32]map[chan<- struct{}]struct{} // the followers of a file, by its watch
	closed  bool
}

// watch returns a channel that receives a token when a file was written or closed, until stop is called.
func (w *watcher) watch(name string) (changed <-chan struct{}, stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, os.ErrClosed
	}
	if w.events == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return nil, nil, err
		}
		w.events, w.byWatch = os.NewFile(uintptr(fd), "changes"), map[int32]map[chan<- struct{}]struct{}{}
		go w.deliver(w.events)
	}
	wd, err := w.add(name)
	if err != nil {
		return nil, nil, err
	}
	if w.byWatch[wd] == nil {
		w.byWatch[wd] = map[chan<- struct{}]struct{}{}
	}
	c := make(chan struct{}, 1)
	w.byWatch[wd][c] = struct{}{}
	return c, func() { w.stop(wd, c) }, nil
}

// use calls do with the instance's descriptor. Callers hold w.mu.
func (w *watcher) use(do func(fd int) error) error {
	// Not Fd, because that would make the descriptor blocking, and closing it would no longer end deliver.
	raw, err := w.events.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	if err != nil {
		return err
	}
	return failed
}

func (w *watcher) add(name string) (wd int32, err error) {
	err = w.use(func(fd int) error {
		n, err := unix.InotifyAddWatch(fd, name, unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
		wd = int32(n)
		return err
	})
	return wd, err
}

func (w *watcher) stop(wd int32, c chan<- struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byWatch[wd], c)
	if len(w.byWatch[wd]) > 0 || w.closed {
		return
	}
	delete(w.byWatch, wd)
	_ = w.use(func(fd int) error { // fails if the file was deleted, and its watch with it
		_, err := unix.InotifyRmWatch(fd, uint32(wd))
		return err
	})
}

// deliver passes on events until the instance is closed.
func (w *watcher) deliver(events *os.File) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := events.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			for c := range w.byWatch[int32(binary.NativeEndian.Uint32(rest))] {
				select {
				case c <- struct{}{}:
				// Not needed, because a token that is there already makes the follower read again.
				default:
				}
			}
			name := binary.NativeEndian.Uint32(rest[12:])
			rest = rest[min(len(rest), unix.SizeofInotifyEvent+int(name)):]
		}
		w.mu.Unlock()
	}
}

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.events != nil {
		w.events.Close()
	}
}
