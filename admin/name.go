package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	socketSuffix = ".sock"
	// readable is how much of a name is kept for people; a digest tells apart
	// the names that this makes equal.
	readable   = 16
	digestSize = 4 // bytes
)

// SocketName is the file name of the socket of a group's daemon. Group names
// hold any text: the file is named after an encoded, short form of them.
// Instance tells daemons of one group on a host apart, "" where there is one.
func SocketName(group, instance string) string {
	if instance == "" {
		return short(group) + socketSuffix
	}
	return short(group) + "." + short(instance) + socketSuffix
}

// short is at most 25 bytes of a-z, 0-9, - and _, the same for the same text
// in every version.
func short(text string) string {
	var b strings.Builder
	for i := 0; i < len(text) && b.Len() < readable; i++ {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
			b.WriteByte(c)
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c - 'A' + 'a')
		default:
			b.WriteByte('-')
		}
	}
	sum := sha256.Sum256([]byte(text))
	return b.String() + "-" + hex.EncodeToString(sum[:digestSize])
}
