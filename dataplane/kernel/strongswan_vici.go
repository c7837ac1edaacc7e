//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/strongswan/govici/vici"
	"golang.org/x/sys/unix"
)

// viciTimeout bounds a conversation with charon, which answers in milliseconds.
const viciTimeout = 10 * time.Second

// talk has a conversation with charon.
func (c *charon) talk(f func(*vici.Session) error) error {
	s, err := c.dial(viciTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

// dial opens a session; with a timeout of 0 it may last.
func (c *charon) dial(timeout time.Duration) (*vici.Session, error) {
	deadline := time.Now().Add(viciTimeout)
	s, err := vici.NewSession(vici.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "unix", viciSocket(c.dir))
			if errors.Is(err, unix.EAGAIN) && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond) // charon has others to accept first: its queue is short
				continue
			}
			if err == nil && timeout > 0 {
				err = conn.SetDeadline(time.Now().Add(timeout))
			}
			return conn, err
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("talking to charon: %w", err)
	}
	return s, nil
}

// request sends a command.
func request(s *vici.Session, command string, args map[string]any) (*vici.Message, error) {
	m := vici.NewMessage()
	for k, v := range args {
		if err := m.Set(k, v); err != nil {
			return nil, fmt.Errorf("%s: argument %s: %w", command, k, err)
		}
	}
	answer, err := s.CommandRequest(command, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return answer, nil
}

// version asks for strongSwan's version, such as "5.9.8".
func (c *charon) version() (version string, err error) {
	err = c.talk(func(s *vici.Session) error {
		m, err := request(s, "version", nil)
		if err == nil {
			version = str(m, "version")
		}
		return err
	})
	return version, err
}

// loaded is a connection that charon knows.
type loaded struct {
	child     string // its name: Tunnel.Fingerprint
	transport bool
	ids       [2]string
}

// conns lists the connections by name.
func (c *charon) conns() (map[string]loaded, error) {
	out := map[string]loaded{}
	err := c.talk(func(s *vici.Session) error {
		msgs, err := s.StreamedCommandRequest("list-conns", "list-conn", nil)
		for _, m := range msgs {
			for _, name := range m.Keys() {
				conn := loaded{}
				for i, end := range []string{"local-1", "remote-1"} {
					conn.ids[i] = str(sub(sub(m, name), end), "id")
				}
				children := sub(sub(m, name), "children")
				for _, conn.child = range children.Keys() {
					conn.transport = str(sub(children, conn.child), "mode") == "TRANSPORT"
				}
				out[name] = conn
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing connections: %w", err)
	}
	return out, nil
}

// ikeSA is an IKE security association, with its children.
type ikeSA struct {
	id       string // charon's own
	spis     string // the same at both ends
	state    string // such as "ESTABLISHED"
	age      time.Duration
	children []childSA
}

type childSA struct {
	name    string
	up      bool
	age     time.Duration
	in, out uint64 // bytes
}

// connecting says that keys are being negotiated.
func (s ikeSA) connecting() bool { return s.state == "CREATED" || s.state == "CONNECTING" }

// uses says whether a child of this name carries traffic.
func (s ikeSA) uses(child string) bool {
	return slices.ContainsFunc(s.children, func(c childSA) bool { return c.up && c.name == child })
}

// sas lists the IKE security associations by the name of their connection.
func (c *charon) sas() (map[string][]ikeSA, error) {
	out := map[string][]ikeSA{}
	err := c.talk(func(s *vici.Session) error {
		msgs, err := s.StreamedCommandRequest("list-sas", "list-sa", nil)
		for _, m := range msgs {
			for _, name := range m.Keys() {
				out[name] = append(out[name], readSA(sub(m, name)))
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing security associations: %w", err)
	}
	return out, nil
}

func readSA(m *vici.Message) ikeSA {
	sa := ikeSA{
		id: str(m, "uniqueid"), spis: str(m, "initiator-spi") + str(m, "responder-spi"), state: str(m, "state"),
		age: time.Duration(num(m, "established")) * time.Second,
	}
	children := sub(m, "child-sas")
	for _, id := range slices.Sorted(slices.Values(children.Keys())) {
		c := sub(children, id)
		state := str(c, "state")
		sa.children = append(sa.children, childSA{
			name: str(c, "name"), up: state == "INSTALLED" || state == "REKEYING" || state == "REKEYED",
			age: time.Duration(num(c, "install-time")) * time.Second, in: num(c, "bytes-in"), out: num(c, "bytes-out"),
		})
	}
	return sa
}

// sub returns a section of a message; an empty one if there is none.
func sub(m *vici.Message, key string) *vici.Message {
	if s, ok := m.Get(key).(*vici.Message); ok {
		return s
	}
	return vici.NewMessage()
}

func str(m *vici.Message, key string) string {
	s, _ := m.Get(key).(string)
	return s
}

func num(m *vici.Message, key string) uint64 {
	n, _ := strconv.ParseUint(str(m, key), 10, 64) // charon writes numbers
	return n
}

// section makes a message of settings.
func section(settings map[string]any) (*vici.Message, error) {
	m := vici.NewMessage()
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		if err := m.Set(k, settings[k]); err != nil {
			return nil, fmt.Errorf("setting %s: %w", k, err)
		}
	}
	return m, nil
}
