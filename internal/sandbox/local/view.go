//go:build linux

package local

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// window is the free space of a running box. It is widened when less than windowLow is left. A program writes about
	// 100 MiB between two checks.
	window, windowLow = 384 << 20, 256 << 20
	// maxStep is the maximum by which a window is widened at once. Each step is twice the last one, if that was less
	// than a second ago.
	maxStep = 1 << 30
)

// watch starts to watch a disk that is mounted at files. If files is empty, it stops.
func (v *view) watch(files string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.files, v.resting = files, time.Time{}
}

// low reports whether the box has little free space.
func (v *view) low() bool {
	v.mu.Lock()
	files := v.files
	if v.busy || time.Now().Before(v.resting) {
		files = ""
	}
	v.mu.Unlock()
	var st unix.Statfs_t
	return files != "" && unix.Statfs(files, &st) == nil && int64(st.Bfree)*st.Bsize < windowLow
}

// begin reports whether the caller may widen the window; end must follow.
func (v *view) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy {
		return false
	}
	v.busy = true
	return true
}

func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy = false
}

// rest prevents the window from being widened for a second.
func (v *view) rest() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.resting = time.Now().Add(time.Second)
}

// step returns the number of bytes by which to widen the window now.
func (v *view) step() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.widened) < time.Second {
		v.lastStep = min(2*v.lastStep, maxStep)
	} else {
		v.lastStep = window
	}
	v.widened = time.Now()
	return v.lastStep
}
