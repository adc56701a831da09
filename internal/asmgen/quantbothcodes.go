package asmgen

// encodeRows stores the codes of two pairs of rows, and returns them as four dwords
// of each 16 columns.
func (k *both) encodeRows(p *pool, starts [2]int, at *int) [4]Vec {
	var pairs [2][4]Vec // of columns: the codes of two rows, and their signs
	for i, start := range starts {
		k.moveTo(start, at)
		for r, from := range []Mem{k.from.At(0), k.from.At(0).By(k.stride, 1)} {
			var row [2]Vec // the codes of two vectors, and their signs
			var factors Vec
			for q := range 4 {
				if k.source == 32 || q%2 == 0 {
					k.I("PREFETCHT1", k.from.At(q*k.rowBytes()/4).By([]Reg{k.ahead, k.t}[r], 1))
				}
				x := p.take()
				switch {
				case k.source == 32:
					k.I("VMOVDQU64", from.At(64*q), x)
				case q%2 == 0:
					k.I("VPSLLD", 16, from.At(32*q), x)
				default:
					k.I("VPANDD", from.At(32*(q-1)), zUpper, x)
				}
				if k.known {
					k.I("VFMADD231PS", x, zZero, zAmax) // NaN from an Inf or NaN on
				}
				var v, e Vec
				if k.scaled() || k.integer {
					if !k.alone && !k.square {
						v = k.rowProduct(p, x, &factors, q, start+r)
						k.roundProduct(p, v)
					}
					k.I("VMULPS", k.room.At(bothColumns+k.columnStep()*q), x, x)
					k.roundProduct(p, x)
					e = x
					if k.square {
						v = p.take()
						k.I("VMOVDQA64", e, v)
					}
				} else {
					v, e = k.roundBoth(p, x, q, start+r)
					p.give(x)
				}
				if !k.alone {
					if q%2 == 1 { // two codes, and two bytes of signs
						k.I("VPSHUFB", zPair, row[q/2], kOdd, v)
						p.give(row[q/2])
					}
					row[q/2] = v
				}
				if r == 1 {
					k.I("VPSHUFB", zPair, pairs[i][q], kOdd, e)
					p.give(pairs[i][q])
				}
				pairs[i][q] = e
			}
			if k.alone {
				continue
			}
			if factors != (Vec{}) {
				p.give(factors)
			}
			codes := k.join(row[0], row[1], p)
			to := k.rowDst.At(0)
			if r == 1 {
				to = to.By(k.rowStride, 1)
			}
			k.storeRow(codes, to)
			p.give(codes)
		}
	}
	var codes [4]Vec
	for q := range codes {
		codes[q] = k.join(pairs[0][q], pairs[1][q], p)
	}
	return codes
}

// columnStep returns the bytes of the factors of 16 columns.
func (k *both) columnStep() int {
	if k.scaled() {
		return 64
	}
	return 128
}

// roundBoth returns the rounding sums of x times zTimes by the factors of a row, unless
// the columns are alone, and by those of columns: the least e, and what it is multiplied
// by.
func (k *both) roundBoth(p *pool, x Vec, q, row int) (v, e Vec) {
	e = p.take()
	k.I("VPANDD", x, zBinade, e)
	if !k.alone {
		v = p.take()
		factors := k.write.At(q/2*128 + 4*row)
		k.I("VRANGEPS.BCST", 3, factors, e, v) // the greater magnitude
		k.I("VFMADD132PS.BCST", factors.At(64), x, v)
		k.I("VPMADDWD", zTimes, v, v)
	}
	factors := k.room.At(bothColumns + k.columnStep()*q)
	k.I("VRANGEPS", 3, factors, e, e)
	k.I("VFMADD132PS", factors.At(64), x, e)
	k.I("VPMADDWD", zTimes, e, e)
	return v, e
}

// rowProduct returns x times the factors of a row. Where vector q has elements of two
// blocks, they are in a register that serves the next one, too.
func (k *both) rowProduct(p *pool, x Vec, factors *Vec, q, row int) Vec {
	at := k.write.At(4 * row)
	switch {
	case k.integer:
		at = at.At(q / 2 * 128)
	case k.global && k.source == 32:
		at = at.At(64 * q)
	case k.global:
		if q == 0 {
			*factors = p.take()
		}
		if q%2 == 0 {
			k.I("VBROADCASTSS", at.At(64*q), *factors)
			k.I("VBROADCASTSS", at.At(64*q+64), kUpper, *factors)
		}
		y := p.take()
		k.I("VMULPS", x, *factors, y)
		return y
	}
	y := p.take()
	k.I("VMULPS.BCST", at, x, y)
	return y
}

// roundProduct makes y what joins to codes: the rounding sum times zTimes, or an integer
// from the second byte on.
func (k *both) roundProduct(p *pool, y Vec) {
	clampTo(k, zLimit, y)
	if k.integer {
		k.I("VCVTPS2DQ", y, y)
		k.I("VPSLLD", 8, y, y)
		return
	}
	e := p.take()
	k.I("VPANDD", y, zBinade, e)
	k.I("VRANGEPS", 3, zLeast, e, e)
	k.I("VFMADD231PS", zAnchor, e, y)
	k.I("VPMADDWD", zTimes, y, y)
	p.give(e)
}

// join makes the codes, with their signs, of two vectors that hold two codes and two
// bytes of signs in each dword.
func (k *both) join(a, b Vec, p *pool) Vec {
	if k.integer { // whose codes have the sign
		k.I("VPSHUFB", zSwap, b, kHigh, a)
		p.give(b)
		return a
	}
	t := p.take()
	k.I("VMOVDQA64", a, t)
	k.I("VPSHUFB", zSwap, b, kHigh, a)
	k.I("VPSHUFB", zSwap, t, kLow, b)
	if k.clamp {
		k.I("VPMINUB", zLimit, a, a)
	}
	k.I("VPTERNLOGD", 0xd8, zSign, b, a) // where zSign is set signs, else codes
	p.give(t)
	p.give(b)
	return a
}

// storeRow stores 64 codes of a row, and fetches room for those of the next tile unless
// they go past the caches.
func (k *both) storeRow(v Vec, at Mem) {
	k.I("VPERMB", v, zOrder, v)
	if !k.stream {
		k.I("PREFETCHT0", at.At(k.packing.bytes(tileSide)))
	}
	switch {
	case k.packing.bits == 4:
		k.I("VPMADDUBSW", zJoin, v, v)
		k.I("VPMOVWB", v, v.Y())
		k.I("VMOVDQU", v.Y(), at)
	case k.packing.bits == 6:
		joinSixes(k, v)
		k.I("VPERMB", v, zSixes, v)
		k.I("VMOVDQU8", v, kSixes, at)
	case k.stream:
		k.I("VMOVNTDQ", v, at)
	default:
		k.I("VMOVDQU64", v, at)
	}
}
