//go:build linux

package kernel

import (
	"fmt"
	"strings"

	"subctl/dataplane"
)

// strongswanConf is the strongswan.conf of our charon. Its first line says what it was
// made for, so that a look at the file tells what a running daemon is set up as.
//
//   - load: what we use and nothing else; the last of the kernel-* plugins to offer a
//     service loses, so userspace ESP comes first where it is wanted.
//   - port: 0 takes any free one instead of 500. IKE begins on port_nat_t, where it
//     would end up behind a translator anyway; packets between two ports that are not
//     500 have the non-ESP marker in front, so that both ends know them from ESP
//     (RFC 7296, section 2.23).
//   - install_routes, install_virtual_ip: those are the plan's business.
//   - threads: userspace ESP keeps several busy for good.
//   - retransmit_*: a try every 1 to 5 seconds, and after 18 seconds without an answer
//     another attempt from the beginning (charon's own would take 165 s).
//   - reuse_ikesa: what is begun anew, under other settings or another key, is negotiated
//     from the beginning, beside what is in use.
//   - ikesa_table_*: a thousand peers find their place in a table of some size.
//   - filelog: level 2 at most; above that charon logs keys.
func strongswanConf(d dataplane.IKEDaemon, engine, dir string) string {
	plugins := "random nonce openssl kdf socket-default kernel-netlink vici"
	if engine == engineLibipsec {
		plugins = strings.Replace(plugins, "kernel-netlink", engineLibipsec+" kernel-netlink", 1)
	}
	level := "default = 0"
	if d.Debug {
		level = "default = 1\n      ike = 2\n      chd = 2\n      cfg = 2\n      knl = 2"
	}
	return fmt.Sprintf(confHeader, d.Port, d.Debug) + fmt.Sprintf(`
charon-systemd {
  load = %s
  port = 0
  port_nat_t = %d
  routing_table = %d
  routing_table_prio = %d
  install_routes = no
  install_virtual_ip = no
  threads = 16
  retransmit_timeout = 1.0
  retransmit_base = 1.3
  retransmit_limit = 5
  retransmit_tries = 6
  reuse_ikesa = no
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
      use_ipv6 = no
    }
    vici {
      socket = unix://%s
    }
  }
}
`, plugins, d.Port, dataplane.CharonTable, dataplane.CharonPriority, level, viciSocket(dir))
}

const confHeader = "# subctl: UDP port %d, debug %t"

// parseConf is what a strongswan.conf of ours was made for.
func parseConf(text string) (d dataplane.IKEDaemon, ok bool) {
	n, err := fmt.Sscanf(text, confHeader, &d.Port, &d.Debug)
	return d, err == nil && n == 2
}
