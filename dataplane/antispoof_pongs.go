package dataplane

// pongRules let only those answers to pings reach the node that it has asked for. All answers share the buffer of the socket by which
// an agent pings: a flood of them would displace those of others.
func (a Antispoof) pongRules(r *antispoofRules) {
	if len(a.Pongs) == 0 {
		return
	}
	r.jump(AntispoofPongs, AntispoofInput, Match{Pong: true})
	r.drop(AntispoofPongs, Match{Unasked: true})
	if len(a.Unforwarded) > 0 {
		forged := []Match{{SAddr: around(a.Unforwarded)}, {IIFNot: "lo"}}
		for _, d := range a.Pongs {
			forged = append(forged, Match{IIFNot: d})
		}
		r.drop(AntispoofPongs, forged...)
	}
	*r = append(*r, AntispoofRule{Chain: AntispoofPongs, Over: EchoRate})
}
