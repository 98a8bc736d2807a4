package wire

// What a handler needs to serve TLS on its socket: kconsume writes it into a
// pipe before the handler starts, as PEM blocks in this order: the handler's
// certificate, its private key (PKCS #8), and the one certificate that a client
// must show. Without the variable there is no TLS.
const (
	// TLSKey is the environment variable that holds the number of the descriptor.
	TLSKey = "KCONSUME_TLS_FD"
	// TLSServerName is the name in the handler's certificate.
	TLSServerName = "localhost"
	// MaxTLSBytes bounds what is in the pipe: every pipe holds that much.
	MaxTLSBytes = 4 << 10
)
