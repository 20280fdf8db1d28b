//! How fast a curve grows: the exponent of the power law that fits it best.

/// The slope of log y over log x by least squares: 0 for what does not grow, 1 for what grows in
/// proportion, 2 for squares. Points with a coordinate that is not positive are left out; `None` if
/// fewer than two different x remain.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let positive = |value: f64| value > 0.0 && value.is_finite();
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(x, y)| positive(*x) && positive(*y))
        .map(|(x, y)| (x.ln(), y.ln()))
        .collect();
    let count = logs.len().max(1) as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let together: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 1e-12).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        [10.0, 100.0, 1000.0, 5000.0].map(|x| (x, of(x))).to_vec()
    }

    #[test]
    fn powers_are_found() {
        for power in [0.0, 0.5, 1.0, 2.0, -1.0] {
            let found = exponent(&curve(|x| 7.0 * x.powf(power))).unwrap();
            assert!((found - power).abs() < 1e-9, "{power}: {found}");
        }
        let noisy = exponent(&[(1.0, 1.1), (10.0, 9.0), (100.0, 105.0)]).unwrap();
        assert!((0.9..1.1).contains(&noisy), "{noisy}");
    }

    #[test]
    fn no_curve_has_no_exponent() {
        assert_eq!(exponent(&[]), None);
        assert_eq!(exponent(&[(1.0, 2.0)]), None);
        assert_eq!(exponent(&[(5.0, 2.0), (5.0, 3.0)]), None);
        assert_eq!(exponent(&[(1.0, 2.0), (0.0, 3.0), (2.0, f64::NAN), (3.0, -1.0)]), None);
    }
}
