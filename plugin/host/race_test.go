//go:build race

package host

// raced: processes start many times slower.
const raced = true
