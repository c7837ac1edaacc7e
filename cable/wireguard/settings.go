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
		Key:     "wireguardPort",
		Kind:    cable.OptionNumber,
		Default: strconv.Itoa(dataplane.WireGuardPort),
		Min:     1,
		Max:     65535,
		Doc:     "UDP port of WireGuard; announced to the other clusters",
	}
	optKeepalive = cable.Option{
		Key: "keepalive", Kind: cable.OptionDuration, Default: "25s", Min: 0, Max: 65535, PerPair: true,
		Doc: "interval of keepalive packets, which keep NAT mappings alive; 0 for none; unset: 25s where NAT is expected or detected, otherwise none",
	}
)

// port returns the UDP port of the device. Both drivers have the setting, with the same value.
func port(l cable.Local) int { return l.Settings[cable.WireGuard].Number(optPort) }

// natKeepalive is the interval of keepalives that keep NAT mappings alive. RFC 4787, section
// 4.3, requires NAT to keep UDP mappings for two minutes, but many keep them for only 30 s.
const natKeepalive = 25 * time.Second

// keepalive returns the interval of keepalives to a peer; 0 for none.
func keepalive(local cable.Local, p cable.Peer) time.Duration {
	if _, set := p.Config[optKeepalive.Key]; set {
		return p.Config.Duration(optKeepalive)
	}
	if local.NAT || p.NAT || p.NATed {
		return natKeepalive
	}
	return 0
}
