//go:build linux

package local

import (
	"bytes"
	"encoding/binary"
	"runtime"
)

// pid1 is the program of process 1 in a box with its own kernel (see gvisor.go; the others have supervisorProgram). It
// is about 100 bytes of machine code, because it must run in any root file system (an image may have neither a shell
// nor a libc) and cost the box's kernel next to nothing.
//
// It does three things:
//
//  1. It makes itself opaque: prctl(PR_SET_DUMPABLE, 0) keeps commands away from its descriptors.
//  2. It ignores SIGCHLD, so that the kernel reaps every orphan that it gets: no zombies.
//  3. It reads its standard input until that ends. Only the server holds the writing end. When the server ends,
//     for any reason, process 1 exits and the kernel kills everything that still runs in the box.
//
// The result is a complete static ELF executable, or nil for an unsupported processor.
func pid1() []byte {
	switch runtime.GOARCH {
	case "amd64":
		return executable(62, pid1AMD64)
	case "arm64":
		return executable(183, words(pid1ARM64))
	default:
		return nil
	}
}

// The kernel's struct sigaction, with SIG_IGN as handler, follows the code in both listings.
var pid1AMD64 = []byte{
	0xbf, 0x04, 0x00, 0x00, 0x00, //             mov  $4, %edi          PR_SET_DUMPABLE
	0x31, 0xf6, //                               xor  %esi, %esi
	0xb8, 0x9d, 0x00, 0x00, 0x00, //             mov  $157, %eax        prctl
	0x0f, 0x05, //                               syscall
	0xbf, 0x11, 0x00, 0x00, 0x00, //             mov  $17, %edi         SIGCHLD
	0x48, 0x8d, 0x35, 0x31, 0x00, 0x00, 0x00, // lea  ignore(%rip), %rsi
	0x31, 0xd2, //                               xor  %edx, %edx
	0x41, 0xba, 0x08, 0x00, 0x00, 0x00, //       mov  $8, %r10d
	0xb8, 0x0d, 0x00, 0x00, 0x00, //             mov  $13, %eax         rt_sigaction
	0x0f, 0x05, //                               syscall
	0x31, 0xff, //                         wait: xor  %edi, %edi        standard input
	0x48, 0x8d, 0x74, 0x24, 0xf0, //             lea  -16(%rsp), %rsi
	0xba, 0x01, 0x00, 0x00, 0x00, //             mov  $1, %edx
	0x31, 0xc0, //                               xor  %eax, %eax        read
	0x0f, 0x05, //                               syscall
	0x85, 0xc0, //                               test %eax, %eax
	0x7f, 0xec, //                               jg   wait
	0x83, 0xf8, 0xfc, //                         cmp  $-4, %eax         EINTR
	0x74, 0xe7, //                               je   wait
	0x31, 0xff, //                               xor  %edi, %edi
	0xb8, 0xe7, 0x00, 0x00, 0x00, //             mov  $231, %eax        exit_group
	0x0f, 0x05, //                               syscall
	1, 0, 0, 0, 0, 0, 0, 0, //             ignore: SIG_IGN
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
}

var pid1ARM64 = []uint32{
	0xb27e03e0,             //       mov  x0, #4      PR_SET_DUMPABLE
	0xaa1f03e1,             //       mov  x1, xzr
	0xd28014e8,             //       mov  x8, #167    prctl
	0xd4000001,             //       svc  #0
	0xd2800220,             //       mov  x0, #17     SIGCHLD
	0x10000221,             //       adr  x1, ignore
	0xaa1f03e2,             //       mov  x2, xzr
	0xb27d03e3,             //       mov  x3, #8
	0xd28010c8,             //       mov  x8, #134    rt_sigaction
	0xd4000001,             //       svc  #0
	0xaa1f03e0,             // wait: mov  x0, xzr     standard input
	0xd10043e1,             //       sub  x1, sp, #16
	0xb24003e2,             //       mov  x2, #1
	0xb24017e8,             //       mov  x8, #63     read
	0xd4000001,             //       svc  #0
	0xf100001f,             //       cmp  x0, #0
	0x54ffff4c,             //       b.gt wait
	0xb100101f,             //       cmn  x0, #4      EINTR
	0x54ffff00,             //       b.eq wait
	0xaa1f03e0,             //       mov  x0, xzr
	0xd2800bc8,             //       mov  x8, #94     exit_group
	0xd4000001,             //       svc  #0
	1, 0, 0, 0, 0, 0, 0, 0, // ignore: SIG_IGN
}

// executable wraps position-independent code into the smallest ELF file: one header, one segment.
func executable(machine uint16, code []byte) []byte {
	const (
		base       = 0x400000
		headerSize = 64 + 56
	)
	size := uint64(headerSize + len(code))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, field := range []any{
		// file header: executable, machine, version, entry, program headers right behind
		uint16(2), machine, uint32(1), uint64(base + headerSize), uint64(64), uint64(0),
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		// program header: load the whole file, readable and executable
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, field) // writing to a buffer never fails
	}
	b.Write(code)
	return b.Bytes()
}

func words(code []uint32) []byte {
	var b []byte
	for _, w := range code {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
