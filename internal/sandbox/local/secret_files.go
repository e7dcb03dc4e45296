//go:build linux

package local

import "sync"

// secretSpace limits the secrets of a box, in bytes. The values of one command have at most 128 KiB, and while one is
// replaced, there are both. Each file takes up whole pages.
const secretSpace = 4 << 20

// secretFiles are the files of secrets in one container.
type secretFiles struct {
	mu sync.Mutex // also for closing the container's root
	// held counts the commands that receive a file, by its name.
	held map[string]int
	// unknown counts the running commands of earlier servers, which may receive any file. It has one more when the container is
	// left to the next server.
	unknown int
}
