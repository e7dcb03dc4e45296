package first

import (
	"syscall"
	"unsafe"
)

// arena is the unit in which Go's runtime reserves the memory of its heap.
const arena = 64 << 20

// probe is on the heap.
var probe *[4096]byte

// Ask asks for large pages for the heap as it is now. Call it again when the heap has grown. A kernel that has none refuses,
// which does no harm.
func Ask() {
	probe = new([4096]byte)
	heap := uintptr(unsafe.Pointer(probe)) &^ (arena - 1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, heap, arena, syscall.MADV_HUGEPAGE)
}
