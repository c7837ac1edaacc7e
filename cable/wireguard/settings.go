package wireguard

import (
	"strconv"
	"time"

	"subctl/cable"
	"subctl/dataplane"
)

// Keys of backend_config. The first two are upstream's.
const (
	publicKeyKey = "publicKey"
	deviceKey    = "interface-name"
	portKey      = "wireguard-port"
)

// The settings.
var (
	optPort = cable.Option{
		Key: "wireguardPort", Kind: cable.OptionNumber, Default: strconv.Itoa(dataplane.WireGuardPort), Min: 1, Max: 65535,
		Doc: "UDP port of WireGuard; the other end is told",
	}
	optKeepalive = cable.Option{
		Key: "keepalive", Kind: cable.OptionDuration, Default: "25s", Min: 0, Max: 65535, PerPair: true,
		Doc: "time between empty packets that keep an address translation alive, 0 for none; unset: 25s where there may be a translation, and none elsewhere",
	}
)

// port returns the UDP port of the device: both drivers have the setting, with one value.
func port(l cable.Local) int { return l.Settings[cable.WireGuard].Number(optPort) }

// natKeepalive keeps address translations alive that forget UDP as soon as they may, or
// sooner: RFC 4787, section 4.3, has them wait for two minutes, and many wait for 30 s.
const natKeepalive = 25 * time.Second

// keepalive returns the time between empty packets to a peer; 0 for none.
func keepalive(local cable.Local, p cable.Peer) time.Duration {
	if _, set := p.Config[optKeepalive.Key]; set {
		return p.Config.Duration(optKeepalive)
	}
	if local.NAT || p.NAT || p.NATed {
		return natKeepalive
	}
	return 0
}
