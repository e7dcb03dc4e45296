//go:build !linux

package first

// Ask does nothing on other systems.
func Ask() {}
