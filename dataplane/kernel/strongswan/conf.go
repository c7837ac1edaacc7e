//go:build linux

package strongswan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Settings are the settings with which a daemon is started.
type Settings struct {
	Port      int  // UDP, of IKE; 0 for any free port
	NATPort   int  // UDP, of IKE and of ESP in UDP through a translation (RFC 3948)
	Userspace bool // whether strongSwan handles ESP packets itself, instead of the kernel
	Debug     bool // whether it logs more, though never a key
	// Table is the routing table that ESP in userspace fills with routes of its own, and
	// Priority the priority of the rule by which it has the table looked up.
	Table, Priority int
	// gets the virtual addresses that are assigned to this end; "" if there are none
	Device string `json:",omitempty"`
	Mark   uint32 `json:",omitempty"` // of the packets that the daemon sends; 0 for none
}

// header begins the first line of the configuration, which continues with the Settings as
// JSON, so that the file shows what a running daemon was started with.
const header = "# subctl: "

// conf returns the strongswan.conf of a daemon.
//
//   - load: what we use and nothing else; the last of the kernel-* plugins to offer a
//     service loses, so ESP in userspace comes first where it is wanted.
//   - port, port_nat_t: packets between two ports that are not 500 have the non-ESP marker
//     in front, so that both ends can tell them from ESP (RFC 7296, section 2.23).
//   - install_routes, install_virtual_ip: addresses and routes are the caller's, except addresses
//     that other ends assign.
//   - fwmark: with kernel-netlink's setting, the daemon looks its own routes up as its marked
//     packets do.
//   - allow_peer_ts: a tunnel may lead to its other end itself, as its packets are told apart by
//     their mark.
//   - threads: ESP in userspace keeps several busy for good.
//   - retransmit_*: a try every 1 to 5 seconds, and after 18 seconds without an answer another
//     attempt from the beginning (the default would take 165 s). A CNF, whose Settings have a Mark,
//     tries as often within 10 seconds: seven times, so that a link that loses a fifth of the
//     packets each way breaks one exchange in a thousand.
//   - reuse_ikesa: what is started anew, under other settings or another key, is negotiated from
//     the beginning, beside what is in use. The children of a dataplane.IKERemote have one IKE
//     security association, though, and what has other settings has another name.
//   - ikesa_table_*: for a thousand peers.
//   - filelog: level 2 at most; above that charon logs keys.
func conf(s Settings, dir string) []byte {
	plugins := "random nonce openssl pem kdf socket-default kernel-netlink vici"
	if s.Userspace {
		plugins = strings.Replace(plugins, "kernel-netlink", libipsec+" kernel-netlink", 1)
	}
	level := "default = 0"
	if s.Debug {
		level = "default = 1\n      ike = 2\n      chd = 2\n      cfg = 2\n      knl = 2"
	}
	virtual := "install_virtual_ip = no"
	mark := ""
	unmarked := ""
	reuse := "no"
	timeout := "1.0"
	base := "1.3"
	if s.Device != "" {
		virtual = "install_virtual_ip = yes\n  install_virtual_ip_on = " + s.Device
	}
	if s.Mark != 0 {
		reuse = "yes"
		timeout = "0.8"
		base = "1.2"
		mark = fmt.Sprintf("\n      fwmark = %#x/%#x", s.Mark, s.Mark)
		unmarked = fmt.Sprintf(
			"\n    kernel-netlink {\n      fwmark = !%#x/%#x\n    }\n    %s {\n      allow_peer_ts = yes\n    }",
			s.Mark, s.Mark, libipsec)
	}
	first, _ := json.Marshal(s) // numbers, booleans and the name of a device
	return fmt.Appendf(
		nil,
		`%s%s
charon-systemd {
  load = %s
  port = %d
  port_nat_t = %d
  routing_table = %d
  routing_table_prio = %d
  install_routes = no
  %s
  threads = 16
  retransmit_timeout = %s
  retransmit_base = %s
  retransmit_limit = 5
  retransmit_tries = 6
  reuse_ikesa = %s
  close_ike_on_child_failure = yes
  ikesa_table_size = 256
  ikesa_table_segments = 16
  replay_window = 128
  filelog {
    stderr {
      %s
      ike_name = yes
    }
  }
  journal {
    default = -1
  }
  plugins {
    socket-default {
      use_ipv6 = no%s
    }%s
    vici {
      socket = unix://%s
    }
  }
}
`,
		header,
		first,
		plugins,
		s.Port,
		s.NATPort,
		s.Table,
		s.Priority,
		virtual,
		timeout,
		base,
		reuse,
		level,
		mark,
		unmarked,
		viciSocket(dir),
	)
}

// parseConf returns the settings that a strongswan.conf of ours was made from, or the zero
// Settings if it is not ours.
func parseConf(text []byte) (s Settings) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	values, ok := bytes.CutPrefix(line, []byte(header))
	if !ok || json.Unmarshal(values, &s) != nil {
		return Settings{}
	}
	return s
}
