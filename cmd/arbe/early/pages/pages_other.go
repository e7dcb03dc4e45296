//go:build !linux

package pages

// Ask does nothing on other systems.
func Ask() {}
