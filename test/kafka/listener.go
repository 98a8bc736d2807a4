package kafka

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Listener is one more listener of every broker, beside the plain one, by which
// the rig itself connects as User:ANONYMOUS.
type Listener struct {
	Name     string // letters and digits
	Protocol string // SSL, SASL_SSL, SASL_PLAINTEXT
	// Certificate makes the broker's, as PEM, for the address that it has. nil
	// where the protocol has none.
	Certificate func(host net.IP) (cert, key []byte, err error)
	// ClientCA is the authority of client certificates, as PEM; with it a client
	// must have one.
	ClientCA []byte
	// Properties are the listener's own, without its prefix.
	Properties map[string]string
}

// ListenerAddr returns host:port of a listener of broker i.
func (c *Cluster) ListenerAddr(name string, i int) string {
	for k, l := range c.options.Listeners {
		if l.Name == name {
			return c.site.listener(i, k)
		}
	}
	panic("no listener " + name)
}

// mostListeners bounds the ports of one node.
const mostListeners = 20

func (s *site) listener(i, k int) string { return s.port(100 + mostListeners*i + k) }

// listeners adds the settings of node i's further listeners.
func (c *Cluster) listeners(i int, p map[string]string) error {
	protocols := []string{"CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT"}
	for k, l := range c.options.Listeners {
		at := "," + l.Name + "://" + c.site.listener(i, k)
		p["listeners"] += at
		p["advertised.listeners"] += at
		protocols = append(protocols, l.Name+":"+l.Protocol)
		own, err := l.files(c.nodes[i].dir, c.site.host)
		if err != nil {
			return err
		}
		maps.Copy(own, l.Properties)
		for key, value := range own {
			p["listener.name."+strings.ToLower(l.Name)+"."+key] = value
		}
	}
	if len(c.options.Listeners) > 0 {
		p["listener.security.protocol.map"] = strings.Join(protocols, ",")
	}
	return nil
}

// files writes a listener's certificate and authority, and names them.
func (l *Listener) files(dir, host string) (map[string]string, error) {
	p := map[string]string{}
	if l.Certificate != nil {
		cert, key, err := l.Certificate(net.ParseIP(host))
		if err != nil {
			return nil, fmt.Errorf("make the certificate of listener %s: %w", l.Name, err)
		}
		path := filepath.Join(dir, l.Name+".pem")
		if err := os.WriteFile(path, append(key, cert...), 0o600); err != nil {
			return nil, fmt.Errorf("write the certificate of listener %s: %w", l.Name, err)
		}
		p["ssl.keystore.type"], p["ssl.keystore.location"] = "PEM", path
	}
	if l.ClientCA != nil {
		path := filepath.Join(dir, l.Name+"-clients.pem")
		if err := os.WriteFile(path, l.ClientCA, 0o600); err != nil {
			return nil, fmt.Errorf("write the client authority of listener %s: %w", l.Name, err)
		}
		p["ssl.truststore.type"], p["ssl.truststore.location"], p["ssl.client.auth"] = "PEM", path, "required"
	}
	return p, nil
}
