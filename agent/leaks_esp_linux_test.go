package agent

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/strongswan/govici/vici"
	"golang.org/x/sys/unix"

	"subctl/dataplane"
	"subctl/internal/nstest"
)

// attackerSA is the security association of an attacker's gateway with the hub's, whose keys the
// attacker has read. The attacker encrypts packets that no selector of its own lets through. The
// hub has the selectors that were negotiated.
type attackerSA struct {
	w    *leakWorld
	from *member
	child
	key, salt []byte
	sequence  uint32
}

// child is a child security association as charon lists it (vici, "list-sas").
type child struct {
	// ike and id: IDs of the IKE and of the child security association; in and out: SPIs
	tunnel, ike, id, in, out string
	state, localTS           string
	encap                    bool
	packetsIn                int
}

// charon sends a command to the IKE daemon of a member's gateway.
func (m *member) charon(w *leakWorld, f func(*vici.Session) error) {
	w.t.Helper()
	s, err := vici.NewSession(vici.WithAddr("unix", filepath.Join(m.charonDir(w), "charon.vici")))
	require.NoError(w.t, err)
	defer s.Close()
	require.NoError(w.t, f(s))
}

// charonDir is the directory of that daemon, which is named after the network namespace.
func (m *member) charonDir(w *leakWorld) string {
	ns, err := os.Readlink(fmt.Sprintf("/proc/self/task/%d/ns/net", m.nodes["gw"].Tid()))
	require.NoError(w.t, err)
	return filepath.Join("/run/subctl", "ipsec-"+strings.Trim(ns, "net:[]"))
}

// children returns the child security associations of a member's gateway.
func (m *member) children(w *leakWorld) (out []child) {
	m.charon(w, func(s *vici.Session) error {
		messages, err := s.StreamedCommandRequest("list-sas", "list-sa", nil)
		for _, message := range messages {
			for _, tunnel := range message.Keys() {
				parent := message.Get(tunnel).(*vici.Message)
				ike, _ := parent.Get("uniqueid").(string)
				children, _ := parent.Get("child-sas").(*vici.Message)
				for _, key := range children.Keys() {
					sa := children.Get(key).(*vici.Message)
					text := func(key string) string { s, _ := sa.Get(key).(string); return s }
					packets, _ := strconv.Atoi(text("packets-in"))
					out = append(out, child{
						tunnel:    tunnel,
						ike:       ike,
						id:        text("uniqueid"),
						in:        text("spi-in"),
						out:       text("spi-out"),
						state:     text("state"),
						localTS:   fmt.Sprint(sa.Get("local-ts")),
						encap:     text("encap") == "yes",
						packetsIn: packets,
					})
				}
			}
		}
		return err
	})
	return out
}

// with returns the security associations that a member's gateway has with the gateway of another
// member.
func (m *member) with(w *leakWorld, other *member) (out []child) {
	for _, c := range m.children(w) {
		if strings.Contains(c.tunnel, other.id) && c.state == "INSTALLED" {
			out = append(out, c)
		}
	}
	return out
}

// settled waits until a member's gateway has one security association with the hub's, and returns
// it. Both may have begun to negotiate: then it ends one of two, which the daemons would only do
// after half a minute.
func (m *member) settled(w *leakWorld) (one child) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		here := m.with(w, w.hub)
		there := w.hub.with(w, m)
		if len(here) == 0 {
			return false
		}
		one = here[0]
		for _, other := range here[1:] {
			if other.ike != one.ike {
				m.charon(w, func(s *vici.Session) error {
					_, err := s.CommandRequest("terminate", message(w, "ike-id", other.ike))
					return err
				})
			}
		}
		return len(here) == 1 && len(there) == 1 && one.in == there[0].out
	}, time.Minute, 10*time.Millisecond)
	return one
}

// message returns the argument of a command to the IKE daemon.
func message(w *leakWorld, key, value string) *vici.Message {
	m := vici.NewMessage()
	require.NoError(w.t, m.Set(key, value))
	return m
}

// newAttackerSA has the attacker's daemon log keys, and negotiate new ones with the hub.
func newAttackerSA(w *leakWorld, from *member) *attackerSA {
	w.t.Helper()
	sa := &attackerSA{w: w, from: from}
	if from.keyLog == "" {
		from.keyLog = filepath.Join(w.t.TempDir(), "keys")
		file := filepath.Join(from.charonDir(w), "strongswan.conf")
		text, err := os.ReadFile(file)
		require.NoError(w.t, err)
		const logs = "  filelog {\n"
		require.Contains(w.t, string(text), logs)
		keys := logs + fmt.Sprintf(
			"    keys {\n      path = %s\n      default = -1\n      chd = 4\n      flush_line = yes\n    }\n",
			from.keyLog)
		require.NoError(w.t, os.WriteFile(file, []byte(strings.Replace(string(text), logs, keys, 1)), 0o600))
		from.charon(w, func(s *vici.Session) error { _, err := s.CommandRequest("reload-settings", nil); return err })
	}
	sa.rekey()
	return sa
}

// rekey negotiates new keys, and reads the one of packets to the hub.
func (sa *attackerSA) rekey() {
	w, t, old := sa.w, sa.w.t, sa.from.settled(sa.w)
	sa.from.charon(w, func(s *vici.Session) error {
		_, err := s.CommandRequest("rekey", message(w, "child-id", old.id))
		return err
	})
	require.Eventually(t, func() bool {
		all := sa.from.with(w, w.hub)
		if len(all) == 1 {
			sa.child = all[0]
		}
		return len(all) == 1 && sa.id != old.id
	}, time.Minute, 5*time.Millisecond)
	log, err := os.ReadFile(sa.from.keyLog)
	require.NoError(t, err)
	found := regexp.MustCompile(
		`encryption initiator key => 20 bytes[^\n]*\n[^\n]* 0: ((?:[0-9A-F]{2} ){16})[^\n]*\n[^\n]* 16: ((?:[0-9A-F]{2} ){4})`).FindAllStringSubmatch(
		string(log), -1)
	require.NotEmpty(t, found, "%s", log)
	last := found[len(found)-1]
	key, err := hex.DecodeString(strings.ReplaceAll(last[1]+last[2], " ", ""))
	require.NoError(t, err)
	sa.key = key[:16]
	sa.salt = key[16:]
	sa.sequence = 0
}

// arrived returns how many packets of the security association the hub has decrypted.
func (sa *attackerSA) arrived() int {
	for _, c := range sa.w.hub.children(sa.w) {
		if c.in == sa.out {
			return c.packetsIn
		}
	}
	sa.w.t.Fatal("the hub has no such security association")
	return 0
}

// tunnel sends IP packets through the tunnel.
func (sa *attackerSA) tunnel(packets [][]byte) {
	for _, p := range packets {
		sa.send(unix.IPPROTO_IPIP, p)
	}
}

// transport sends the contents of IP packets between the two gateways, and other packets in whole,
// as IP in IP.
func (sa *attackerSA) transport(packets [][]byte) {
	for _, p := range packets {
		if [8]byte(p[12:20]) == [8]byte(nstest.IPv4(sa.from.node("gw"), sa.w.hub.node("gw"), 0, nil)[12:20]) {
			sa.send(p[9], p[20:])
		} else {
			sa.send(unix.IPPROTO_IPIP, p)
		}
	}
}

// send encrypts a payload as RFC 4303 and RFC 4106 (AES-GCM) specify, and sends it from the
// attacker's gateway to the hub's.
func (sa *attackerSA) send(next byte, payload []byte) {
	block, err := aes.NewCipher(sa.key)
	require.NoError(sa.w.t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(sa.w.t, err)
	padded := append([]byte{}, payload...)
	pad := byte(0)
	for ; (len(padded)+2)%4 != 0; pad++ {
		padded = append(padded, pad+1)
	}
	padded = append(padded, pad, next)
	spi, err := strconv.ParseUint(sa.out, 16, 32)
	require.NoError(sa.w.t, err)
	sa.sequence++
	sequence := firstSequence + sa.sequence
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(spi)), sequence)
	iv := binary.BigEndian.AppendUint64(nil, uint64(sequence))
	esp := append(append(header[:8:8], iv...), gcm.Seal(nil, append(sa.salt[:4:4], iv...), padded, header)...)
	proto := byte(unix.IPPROTO_ESP)
	if sa.encap {
		proto = unix.IPPROTO_UDP
		esp = nstest.UDP(dataplane.IPsecPort, dataplane.IPsecPort, esp)
	}
	send(sa.w.t, sa.from.nodes["gw"], [][]byte{nstest.IPv4(sa.from.node("gw"), sa.w.hub.node("gw"), proto, esp)})
}

// firstSequence is far above the sequence numbers that the attacker's daemon uses meanwhile.
const firstSequence = 1 << 20

// breakSelectors widens the selectors of the attacker's tunnel first, which the hub does not
// accept. Then it widens those of the hub, so that nothing binds the sources of packets any more.
// Last it removes the rules of the hub, which bind their destinations.
func (w *leakWorld) breakSelectors(from *member) {
	sync := func(m *member, wide string) {
		m.wide = wide
		m.sync(w.t, w.pairs[m.id]...)
	}
	negotiated := func(t *testing.T, wide bool) {
		from.charon(w, func(s *vici.Session) error { // its agent negotiates anew
			_, err := s.CommandRequest("terminate", message(w, "ike", from.settled(w).tunnel))
			return err
		})
		require.Eventually(t, func() bool { return strings.Contains(from.settled(w).localTS, "0.0.0.0/1") == wide },
			time.Minute, 10*time.Millisecond)
		nstest.Until(t, from.host("worker"), w.hub.host("worker"))
	}
	w.t.Run("with wide selectors of the attacker", func(t *testing.T) {
		sync(from, w.hub.id)
		negotiated(t, false)
		_, seen := w.attack(from)
		require.Empty(t, seen)
	})
	w.t.Run("with wide selectors of the hub", func(t *testing.T) {
		sync(w.hub, from.id)
		negotiated(t, true)
		_, seen := w.attack(from)
		require.NotContains(t, strings.Join(seen, "\n"), " udp dport", "the rules of the hub hold: it forwards nothing")
		require.Contains(t, strings.Join(seen, "\n"), " icmp", "the hub answers to forged sources")
		require.Positive(t, slices.Min(w.passed), "the test does not see what the selectors refuse")
	})
	w.t.Run("with wide selectors of the hub, and without its rules", func(t *testing.T) {
		w.hub.nodes["gw"].Run(withoutRules)
		_, seen := w.attack(from)
		require.Contains(t, strings.Join(seen, "\n"), " udp dport")
	})
	sync(w.hub, "")
	sync(from, "")
	negotiated(w.t, false)
}
